#!/usr/bin/env python3
"""Writes what a wheel is made of besides our own code: sboms/NAME.cdx.json (CycloneDX 1.6) and the licences of all of it.

    sbom.py WHEEL VERSION FOLDER

Versions are those that are installed here: of Debian's packages by dpkg, of Python's by their own metadata.
"""
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Linked or compiled into the programs of each wheel: Debian's packages, then Python's.
PARTS = {
    "attnc-runtime": (["libstdc++-12-dev", "llvm-22-dev"], ["nanobind"]),  # BLAKE3 is LLVM's
    "attnc": (
        ["libmlir-22-dev", "llvm-22-dev", "liblld-22-dev", "libprotobuf-dev", "zlib1g-dev", "libzstd-dev",
         "libstdc++-12-dev"],
        ["onnx"],
    ),
}


def debian(package):
    query = ["dpkg-query", "-W", "-f", "${Version} ${source:Package}", package]
    version, source = subprocess.run(query, check=True, capture_output=True, text=True).stdout.split()
    return {"type": "library", "bom-ref": f"deb/{package}", "name": package, "version": version,
            "description": f"Debian, from {source}", "purl": f"pkg:deb/debian/{package}@{version}?arch=amd64"}


def python(package):
    about = importlib.metadata.metadata(package)
    licence = about.get("License-Expression") or about.get("License") or "see licenses/"
    return {"type": "library", "bom-ref": f"pypi/{package}", "name": package, "version": about["Version"],
            "licenses": [{"license": {"name": licence}}], "purl": f"pkg:pypi/{package}@{about['Version']}"}


def copy_licences(debian_packages, python_packages, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for package in debian_packages:
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", folder / f"{package}.txt")
    for package in python_packages:
        files = [f for f in importlib.metadata.files(package) or [] if "licenses" in f.parts or f.name.startswith("LICENSE")]
        if not files:
            sys.exit(f"error: no licence found of the package {package}")
        for file in files:
            shutil.copyfile(file.locate(), folder / f"{package}-{file.name}")


def main():
    if len(sys.argv) != 4 or sys.argv[1].replace("_", "-") not in PARTS:
        sys.exit(__doc__)
    name, version, folder = sys.argv[1].replace("_", "-"), sys.argv[2], pathlib.Path(sys.argv[3])
    debian_packages, python_packages = PARTS[name]
    components = [debian(p) for p in debian_packages] + [python(p) for p in python_packages]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, version, components]))}",
        "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": name, "name": name, "version": version,
                                   "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:pypi/{name}@{version}"}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [c["bom-ref"] for c in components]}],
    }
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "sboms").mkdir(parents=True)
    (folder / "sboms" / f"{name}.cdx.json").write_text(json.dumps(bom, indent=2) + "\n")
    copy_licences(debian_packages, python_packages, folder / "licenses")


if __name__ == "__main__":
    main()
