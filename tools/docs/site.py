"""What mkdocs.yml adds to MkDocs: a file of the repository that a page links to becomes a page itself."""
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<part>#[^)\s]*)?\)")
LANGUAGES = {".h": "c", ".cpp": "cpp", ".py": "python", ".json": "json"}


def targets(markdown, folder):
    """What the links of a page lead to, as paths in the repository; of folders nothing can be shown."""
    for match in LINK.finditer(markdown):
        path = (folder / match["path"]).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path.relative_to(ROOT)


def place(path):
    """Where the site has a file of the repository."""
    if path.parts[0] == "docs":
        return pathlib.PurePath(*path.parts[1:])
    return pathlib.PurePath("repository", path if path.suffix == ".md" else f"{path}.md")


def rewritten(markdown, folder, page, known):
    """The page's links as the site has them; what is not in it stays as text."""

    def link(match):
        path = (folder / match["path"]).resolve()
        if not path.is_relative_to(ROOT) or place(path.relative_to(ROOT)).as_posix() not in known:
            return match["text"]
        target = os.path.relpath(place(path.relative_to(ROOT)), page.parent)
        return f"[{match['text']}]({target}{match['part'] or ''})"

    return LINK.sub(link, markdown)


def on_files(files, config):
    outside = set()
    for file in files.documentation_pages():
        path = pathlib.Path(file.abs_src_path)
        outside |= {p for p in targets(path.read_text(), path.parent) if p.parts[0] != "docs"}
    for path in sorted(outside):
        text = (ROOT / path).read_text()
        if path.suffix != ".md":
            text = f"# {path.name}\n\n`{path}`\n\n````{LANGUAGES.get(path.suffix, '')}\n{text}````\n"
        files.append(File.generated(config, place(path).as_posix(), content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    source = pathlib.PurePath(page.file.src_uri)
    inside = source.parts[0] == "repository"
    folder = ROOT / (pathlib.PurePath(*source.parts[1:]) if inside else pathlib.PurePath("docs", source)).parent
    known = {file.src_uri for file in files}
    if inside:
        return rewritten(markdown, folder, source, known)
    # Within docs MkDocs checks each link itself.
    return LINK.sub(lambda m: rewritten(m[0], folder, source, known) if m["path"].startswith("../") else m[0], markdown)
