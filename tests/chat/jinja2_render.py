"""jinja2_render.py CASES.json: what template_render does, by Jinja2 as Hugging Face sets it up. A third opinion only."""

import json
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    templates = {name: environment.from_string(source) for name, source in data["templates"].items()}
    for one in data["cases"]:
        try:
            text = templates[one["template"]].render(
                messages=one["messages"],
                tools=one["tools"],
                documents=None,
                add_generation_prompt=one["add_generation_prompt"],
                bos_token=one["bos_token"],
                eos_token=one["eos_token"],
                **one["variables"],
            )
            print(json.dumps({"ok": True, "text": text}))
        except Exception as error:  # any failure of the template
            print(json.dumps({"ok": False, "error": str(error)}))


if __name__ == "__main__":
    main()
