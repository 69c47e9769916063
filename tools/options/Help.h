#ifndef TOOLS_OPTIONS_HELP_H
#define TOOLS_OPTIONS_HELP_H

namespace llvm {
class raw_ostream;
namespace opt {
class OptTable;
}
} // namespace llvm

namespace attn::tools {
struct ToolInfo;

/// Usage, overview, options by group, examples and exit codes.
void printHelp(llvm::raw_ostream &os, const llvm::opt::OptTable &table, const ToolInfo &tool);

} // namespace attn::tools

#endif // TOOLS_OPTIONS_HELP_H
