#!/usr/bin/env python3
"""Fails when a source file includes a module that its own may not use. The edges are those of docs/architecture.md."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# module -> modules it may include directly; reachability is transitive, base and log are open to all.
EDGES = {
    "base": [], "log": ["base"], "settings": ["base"], "json": ["base"], "net": ["base"], "store": ["base"],
    "media": ["base"], "protocol": ["json"], "api": ["json"], "tokenizer": ["json"], "chat": ["json"],
    "gates": ["base"], "download": ["json", "net"], "serving": ["api", "net"],
    "grammar": ["tokenizer"], "tensor": ["base"], "backend": ["tensor"], "ops": ["backend"],
    "checkpoint": ["json", "tensor", "backend"], "state": ["tensor"], "experts": ["checkpoint", "backend"],
    "layers": ["ops", "state", "experts"], "models": ["json", "checkpoint", "layers", "state", "media"],
    "sampling": ["ops", "grammar"], "engine": ["models", "state", "sampling", "tokenizer", "chat"],
    "worker": ["engine"],
    "coordinator": ["json", "protocol", "api", "net", "store", "serving", "gates", "download"],
    "provider": ["engine", "protocol", "serving", "gates", "net"],
}
# Never, whatever the graph says.
FORBIDDEN = {
    "coordinator": {"tensor", "backend", "ops", "checkpoint", "tokenizer", "chat", "grammar", "media", "layers",
                    "models", "sampling", "state", "experts", "engine"},
    "engine": {"protocol", "api", "net", "store"},
    "worker": {"protocol", "api", "net", "store"},
    "net": {"protocol"},
}
# Third-party headers that only their wrapping module may include; everything else reaches them through it.
WRAPPED = {
    r"boost/(asio|beast)": {"net"}, r"openssl/": {"net", "base", "engine", "state", "backend", "protocol"},
    r"curl/": {"download"}, r"soci/": {"store"}, r"spdlog/": {"log"}, r"toml\+\+/": {"settings"}, r"pcre2": {"tokenizer"},
    r"utf8proc": {"tokenizer", "chat"}, r"prometheus/": {"coordinator", "provider", "serving"},
    r"sodium": {"protocol", "coordinator", "provider", "engine", "serving", "store"},
}
HEADER_BANNED = re.compile(r'#include\s*[<"](boost/asio|boost/beast|fmt/|soci/|cuda_runtime|regex>|iostream>|filesystem>|ranges>)')
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def reachable(module):
    seen, todo = set(), [module]
    while todo:
        for other in EDGES[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def main():
    problems = []
    reach = {m: reachable(m) | {m, "base", "log"} for m in EDGES}
    for module, targets in reach.items():
        if module != "log" and module in targets - {module}:
            problems.append(f"the layering itself has a cycle through {module}")
    for path in sorted((ROOT / "flotilla").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        relative = path.relative_to(ROOT)
        module = relative.parts[1]
        if module not in EDGES:
            problems.append(f"{relative}: module '{module}' is not in the layering")
            continue
        text = path.read_text(encoding="utf-8")
        is_test = path.stem.endswith("_test") or path.stem.startswith("test_")
        for include in INCLUDE.findall(text):
            if include.startswith("flotilla/"):
                other = include.split("/")[1]
                if other not in reach[module] or other in FORBIDDEN.get(module, ()):
                    problems.append(f"{relative}: {module} may not include {include}")
            if not is_test:
                for pattern, owners in WRAPPED.items():
                    if re.match(pattern, include) and module not in owners:
                        problems.append(f"{relative}: <{include}> belongs into {', '.join(sorted(owners))} only")
        if path.suffix == ".h" and (match := HEADER_BANNED.search(text)):
            problems.append(f"{relative}: a header may not include {match.group(1)}")
        if relative.parts[:4] == ("flotilla", "backend", "cuda", "device"):
            for include in INCLUDE.findall(text):
                if include.startswith("flotilla/") and not include.startswith("flotilla/backend/cuda/device/"):
                    problems.append(f"{relative}: device code may not include {include}")
    for problem in problems:
        print(problem)
    print(f"layering: {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
