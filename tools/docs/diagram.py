"""A graph of frontends/graph as a drawing: a box for each layer, below what it reads; a frame around what is repeated."""
import html
import re

HEIGHT, GAP, SPACE, LETTER, WIDEST = 30, 16, 10, 6.1, 860
STYLE = """<style>
text{font:10px sans-serif;fill:#222;text-anchor:middle}.kind{fill:#666}
rect{fill:#eef1f5;stroke:#9aa5b1;rx:4}.frame{fill:none;stroke-dasharray:5 4}.input{fill:#fff}
.recurrent{fill:#fdf0d5;stroke:#d9a441}.fused{fill:#cdebd3;stroke:#2e8b57}.missed{fill:#f8d3d3;stroke:#c44e52}.other{fill:#e4dcf1;stroke:#8172b3}
path{fill:none;stroke:#9aa5b1}
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.kind{fill:#aaa}rect{fill:#2b3138;stroke:#6b7683}.input{fill:#15191d}.frame{fill:none}
.recurrent{fill:#4a3b1a}.fused{fill:#1e4d33}.missed{fill:#5c2326}.other{fill:#3a3050}}
</style>"""
RECURRENT = {"lstm", "gru", "rnn", "lstm_cell", "gru_cell", "rnn_cell"}


class Box:
    """A layer, or an input; a repetition has a drawing inside."""

    def __init__(self, name, kind, reads=(), tone="", inside=None):
        self.name, self.kind, self.reads, self.tone, self.inside = name, kind, reads, tone, inside
        self.width = max(len(name), len(kind)) * LETTER + 14
        self.height = HEIGHT
        if inside:
            self.width, self.height = max(self.width, inside.width + 2 * SPACE), inside.height + 22 + SPACE


def reads_of(layer):
    """Names of values that a layer mentions, each without what stands behind a point."""
    words = []
    for key, value in layer.items():
        if key in ("layer", "name", "comment", "equation", "weights", "layers"):
            continue
        words += re.findall(r"[A-Za-z_]\w*", " ".join(strings(value)))
    return words


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)


class Drawing:
    """Boxes in rows: each stands below all that it reads."""

    def __init__(self, inputs, layers, tones):
        self.boxes = {name: Box(name, "", tone="input") for name in inputs}
        for layer in layers:
            inner = layer.get("layers")
            inside = Drawing(list(layer.get("state", {})) + list(layer.get("over", {})), inner, tones) if inner else None
            reads = reads_of(layer) + (sum(map(reads_of, flat(inner)), []) if inner else [])
            tone = tones.get(layer["name"]) or ("recurrent" if layer["layer"] in RECURRENT else "")
            times = f" × {layer['times']}" if "times" in layer else ""
            known = [name for name in dict.fromkeys(reads) if name in self.boxes and name != layer["name"]]
            self.boxes[layer["name"]] = Box(layer["name"], layer["layer"].replace("_", " ") + times, known, "frame" if inside else tone, inside)
        self.arrange()

    def arrange(self):
        depth, rows = {}, {}
        for name, box in self.boxes.items():
            depth[name] = max((depth[read] + 1 for read in box.reads), default=0)
        for name in reversed(list(self.boxes)):  # what reads nothing stands just above its first reader
            readers = [depth[other] for other, box in self.boxes.items() if name in box.reads]
            if not self.boxes[name].reads and readers:
                depth[name] = max(0, min(readers) - 1)
        for name in self.boxes:
            rows.setdefault(depth[name], []).append(self.boxes[name])
        lines = [line for _, row in sorted(rows.items()) for line in wrapped(row)]
        widths = [sum(box.width for box in line) + SPACE * (len(line) - 1) for line in lines]
        self.width, y = max(widths), 0
        for line, width in zip(lines, widths):
            x = (self.width - width) / 2
            for box in line:
                box.x, box.y = x, y
                x += box.width + SPACE
            y += max(box.height for box in line) + GAP
        self.height = y - GAP

    def svg(self, left, top):
        parts = []
        for box in self.boxes.values():
            for read in (self.boxes[name] for name in box.reads):
                x, y = left + read.x + read.width / 2, top + read.y + read.height
                to, end = left + box.x + box.width / 2, top + box.y
                aside = 70 if end - y > 2 * GAP and abs(x - to) < 40 else 0  # past what stands between
                parts.append(f'<path d="M{x:.0f} {y:.0f}C{x + aside:.0f} {y + 12:.0f} {to + aside:.0f} {end - 12:.0f} {to:.0f} {end:.0f}"/>')
        for box in self.boxes.values():
            x, y = left + box.x, top + box.y
            tone = f' class="{box.tone}"' if box.tone else ""
            parts.append(f'<rect{tone} x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"/>')
            middle = x + box.width / 2
            if box.inside:
                parts.append(f'<text x="{middle:.0f}" y="{y + 14:.0f}">{html.escape(box.name)} <tspan class="kind">{box.kind}</tspan></text>')
                parts += box.inside.svg(x + (box.width - box.inside.width) / 2, y + 22)
            elif box.kind:
                parts.append(f'<text x="{middle:.0f}" y="{y + 13:.0f}">{html.escape(box.name)}</text>')
                parts.append(f'<text class="kind" x="{middle:.0f}" y="{y + 25:.0f}">{box.kind}</text>')
            else:
                parts.append(f'<text x="{middle:.0f}" y="{y + 19:.0f}">{html.escape(box.name)}</text>')
        return parts


def flat(layers):
    for layer in layers:
        yield layer
        yield from flat(layer.get("layers", []))


def wrapped(row):
    """A row as lines that are not too wide."""
    lines, width = [[]], 0
    for box in row:
        if lines[-1] and width + box.width > WIDEST:
            lines, width = lines + [[]], 0
        lines[-1].append(box)
        width += box.width + SPACE
    return lines


def draw(graph, tones):
    """The drawing of a graph, or of its entries below each other. `tones`: {(entry, layer): class of its box}."""
    entries = graph.get("entries") or {"": graph}
    drawings = []
    for name, entry in entries.items():
        own = {layer: tone for (where, layer), tone in tones.items() if where == name}
        drawings.append((name, Drawing(entry["inputs"], entry["layers"], own)))
    width = max(drawing.width for _, drawing in drawings) + 2 * SPACE
    top, parts = SPACE, []
    for name, drawing in drawings:
        if name:
            parts.append(f'<text x="{width / 2:.0f}" y="{top + 8:.0f}" font-weight="bold">{name}</text>')
            top += 16
        parts += drawing.svg((width - drawing.width) / 2, top)
        top += drawing.height + 2 * SPACE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" viewBox="0 0 {width:.0f} {top:.0f}">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"
