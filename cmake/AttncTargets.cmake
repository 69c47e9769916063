option(ATTNC_PCH "compile with the shared precompiled header" ON)
separate_arguments(LLVM_DEFINITIONS_LIST NATIVE_COMMAND "${LLVM_DEFINITIONS}")

# attnc_library(NAME SOURCES... [DEPENDS ...] [LINK ...]): a static library of
# one room, compiled against LLVM's headers with the shared precompiled header.
# With UNITY its files are compiled four at a time: most of a small file's time
# goes into templates that its neighbours instantiate as well.
function(attnc_library name)
  cmake_parse_arguments(ARG "UNITY" "" "DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  attnc_compile_with_mlir(${name})
  if(ARG_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

# attnc_tool(NAME SOURCES... LINK ...): an executable in build/bin.
function(attnc_tool name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  attnc_compile_with_mlir(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} MLIR LLVM)
  # libMLIR and libLLVM lie in a folder of their own on Debian, where no loader
  # looks. The same in the build: a RUNPATH to be changed later ends with an empty
  # element, which means the working folder.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "${LLVM_LIBRARY_DIR}" BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${name} PRIVATE -fuse-ld=lld -Wl,--gc-sections)
endfunction()

function(attnc_compile_with_mlir name)
  target_compile_definitions(${name} PRIVATE ${LLVM_DEFINITIONS_LIST})
  target_compile_options(${name} PRIVATE -fno-exceptions)
  if(ATTNC_PCH AND TARGET AttncPrecompiled)
    target_precompile_headers(${name} REUSE_FROM AttncPrecompiled)
  endif()
endfunction()

