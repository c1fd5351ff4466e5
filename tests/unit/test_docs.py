"""What README and docs say is run, and compared with what there is."""

import ast
import builtins
import dataclasses
import importlib
import json
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import gymnasium
import pytest
from scripts import run_script

import envfleet
import envfleet.backends
import envfleet.errors
import envfleet.native
import envfleet.train
from envfleet.cli import main, sweep
from envfleet.cli.settings import parse_request
from envfleet.train import A2CConfig, DQNConfig, OffPolicyConfig, PPOConfig, SACConfig, TD3Config, TrainConfig
from envfleet.train.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *TUTORIALS]
DESCRIBED = [page for page in PAGES if page.name != "code-tour.md"]  # which is about private names
PACKAGES = [
    "envfleet",
    "envfleet.backends",
    "envfleet.typing",
    *(f"envfleet.{info.name}" for info in pkgutil.iter_modules(envfleet.__path__) if info.ispkg and info.name != "cli"),
]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
BLOCKS_OF = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}
BLOCKS = [
    pytest.param(page, number, id=f"{page.name}-{number}", marks=[pytest.mark.ray] if page.name == "ray.md" else [])
    for page, blocks in BLOCKS_OF.items()
    if page.name != "jax.md"  # tests/interop/test_gymnax_docs.py runs it where JAX is
    if page not in TUTORIALS  # test_notebooks.py runs each as a whole
    for number in range(len(blocks))
]


COMMANDS = [
    line
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.startswith("envfleet ")
]


def test_there_are_blocks_to_run():
    assert len(BLOCKS) >= 4


def test_every_page_below_docs_is_looked_at_here_or_with_the_adapters():
    below = set((ROOT / "docs").rglob("*.md"))
    assert below - set(PAGES) == set((ROOT / "docs" / "coming_from").glob("*.md"))


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_python_blocks_run(page, number, tmp_path, request):
    """As a reader would: saved as a script, run by Python; a warning would be seen on stderr.

    A block that begins with a file's name, as in `# my_env.py`, is that file for the blocks after it.
    """
    *earlier, block = BLOCKS_OF[page][: number + 1]
    for text in earlier:
        if named := re.match(r"# (\w+\.py)\n", text):
            (tmp_path / named[1]).write_text(text)
    script = tmp_path / "block.py"
    script.write_text(block)
    code, _, errors = run_script(script, [], tmp_path, anew=request.node.get_closest_marker("ray") is not None)
    assert code == 0, errors
    assert not errors


def test_the_example_has_fifteen_lines_at_most():
    first = BLOCKS_OF[PAGES[0]][0]
    assert "make_vec" in first
    assert len(first.strip().splitlines()) <= 15


def is_about_a_folder(command):
    return "RUN" in command or "SWEEP" in command


@pytest.mark.parametrize("command", [line for line in COMMANDS if not is_about_a_folder(line)])
def test_commands_that_train_are_understood(command):
    program, name, *arguments = shlex.split(command, comments=True)
    assert (program, name) in [("envfleet", "train"), ("envfleet", "sweep")]
    config = parse_request(arguments).config if name == "train" else sweep.parse_request(arguments)[0]
    assert config.env_id in arguments


@pytest.mark.parametrize("command", [line for line in COMMANDS if is_about_a_folder(line)])
def test_commands_about_runs_fail_for_want_of_a_run_only(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command, comments=True)[1:]) == 1
    assert is_about_a_folder(capsys.readouterr().err)


def test_the_table_of_search_spaces_is_what_is_searched():
    table = (ROOT / "docs" / "sweep.md").read_text().split("<!-- search space: begin -->\n")[1].split("<!--")[0]
    written = {}
    for name, usual, otherwise in re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.*?) ?\|$", table, re.MULTILINE):
        written[name] = {"": usual, **dict(re.findall(r"(\w+): `(.*?)`", otherwise))}
    for algo, entry in ALGORITHMS.items():
        fields = {field.name for field in dataclasses.fields(entry.config)}
        said = {name: texts.get(algo, texts[""]) for name, texts in written.items() if name in fields}
        space = envfleet.train.default_search_space(entry.config("CartPole-v1"))
        assert said == {name: repr(found) for name, found in space.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_api_page_lists_exactly_the_public_names(package):
    page = (ROOT / "docs" / "api.md").read_text()
    section = re.search(rf"^## {re.escape(package)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    cells = re.findall(r"^\| (`[^|]*) \|", section.group(1), re.MULTILINE)
    names = sorted(name for cell in cells for name in re.findall(r"`(\w+)`", cell))
    assert names == list(importlib.import_module(package).__all__)


def test_the_api_page_has_no_section_of_a_package_that_is_not_there():
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(PACKAGES)


@pytest.mark.parametrize("page", DESCRIBED, ids=lambda page: page.name)
def test_classes_that_the_documentation_names_are_there(page):
    """Public ones, Python's, Gymnasium's, those of the page's own examples, tests, and what others call theirs."""
    text = page.read_text()
    known = {name for package in PACKAGES for name in importlib.import_module(package).__all__}
    known |= {name for module in (builtins, gymnasium.spaces, gymnasium.wrappers) for name in vars(module)}
    known |= set(re.findall(r"^class (\w+)", text, re.MULTILINE))
    known |= {name for test in TESTS for name in re.findall(r"^class (Test\w+)", test.read_text(), re.MULTILINE)}
    known |= {"Action", "MjData", "Params", "State"}  # of C++ and of MuJoCo
    assert sorted({name for name in inline_code(text) if re.fullmatch(r"[A-Z][a-z]\w+", name)} - known) == []


@pytest.mark.parametrize("page", DESCRIBED, ids=lambda page: page.name)
def test_names_with_dots_that_the_documentation_gives_lead_somewhere(page):
    """Both `envfleet.package.name` and what fleets and agents are said to have."""
    with envfleet.make_vec("CartPole-v1", 1, "sync") as envs:
        of_fleets = set(vars(envs))
    of_fleets |= {
        name for fleet in envfleet.__all__ if fleet.endswith("VectorEnv") for name in dir(getattr(envfleet, fleet))
    }
    for code in inline_code(page.read_text()):
        for name in re.findall(r"\benvfleet(?:\.\w+)+", code):
            pkgutil.resolve_name(name)
        for name in re.findall(r"\benvs\.(\w+)", code):
            assert name in of_fleets, f"no fleet has {name}"
        for name in re.findall(r"\bagent\.(\w+)", code):
            assert name in dir(envfleet.train.Agent), f"an agent has no {name}"


def inline_code(text):
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_every_fault_in_the_table_has_a_test_that_exists() -> None:
    section = (ROOT / "docs" / "failures.md").read_text().split("## Fault by fault\n")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and not row.startswith("| fault |")]
    assert len(rows) > 50
    for row in rows:
        linked = re.findall(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", row)
        assert linked, f"no test is linked: {row}"
        for name, path in linked:
            assert re.search(rf"(def|class) {name}\b", (ROOT / path).read_text()), f"{path} has no {name}: {row}"


def test_errors_that_the_documentation_names_can_be_caught_by_that_name() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(\w+Error)`", page.read_text())}
    public = {*envfleet.__all__, *envfleet.native.__all__, *envfleet.train.__all__, *vars(builtins)}
    assert sorted(named - public) == []
    assert sorted(set(envfleet.errors.__all__) - set(envfleet.__all__)) == []


@pytest.mark.parametrize(
    ("config", "page"),
    [
        (TrainConfig, "training.md"),
        (OffPolicyConfig, "training.md"),
        (A2CConfig, "a2c.md"),
        (PPOConfig, "ppo.md"),
        (SACConfig, "sac.md"),
        (TD3Config, "td3.md"),
        (DQNConfig, "dqn.md"),
    ],
)
def test_tables_of_settings_hold_every_setting_with_its_default(config, page):
    text = (ROOT / "docs" / page).read_text()
    section = text.split(f"<!-- settings: {config.__name__} -->\n")[1].split("\n\n")[0]
    written = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`|required) \| .* \|$", section, re.MULTILINE)
    own = [entry for entry in dataclasses.fields(config) if entry.name in config.__annotations__]
    assert [name for name, _ in written] == [entry.name for entry in own]
    for (name, cell), entry in zip(written, own, strict=True):
        assert (dataclasses.MISSING if not cell else ast.literal_eval(cell)) == default(entry), name


def default(entry):
    return entry.default_factory() if entry.default_factory is not dataclasses.MISSING else entry.default


def test_tests_that_the_docs_name_are_there():
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in sources, f"{page.name} names {name}"


def test_the_readmes_figures_are_those_of_the_committed_result():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from readme_table import readme_section, update_readme
    finally:
        sys.path.pop(0)
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("<!-- benchmark: begin -->")[2].partition("<!-- benchmark: end -->")[0]
    (name,) = set(re.findall(r"benchmarks/results/([\w.-]+)\.md", table))
    result = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    assert update_readme(readme, readme_section(result, name)) == readme


def test_the_tables_of_the_compiled_learner_are_those_of_the_committed_result():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from learner import PAGE, PUBLISHED, published
    finally:
        sys.path.pop(0)
    page = PAGE.read_text()
    assert published(page, json.loads(PUBLISHED.read_text())) == page


def test_the_tables_of_training_speed_are_those_of_the_committed_result():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from harness.pages import section_of
        from training_speed import PAGE, PUBLISHED, SECTION, training_section
    finally:
        sys.path.pop(0)
    assert section_of(PAGE.read_text(), SECTION) == training_section(json.loads(PUBLISHED.read_text()))


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_links_to_headings_lead_to_one():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([\w.-]*)#([\w-]+)\)", page.read_text()):
            text = (page.parent / target if target else page).read_text()
            headings = [re.sub(r"[^\w -]", "", line).lower() for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
            assert anchor in [heading.replace(" ", "-") for heading in headings], f"{page.name} links to {anchor}"
