"""The Optuna side of a sweep: a study in an SQLite database that one process writes.

SQLite survives a kill at any moment: what was written is there, what was being written is not. (A line that is cut off
in a file of Optuna's journal makes the whole journal unreadable as soon as another one follows.)

Suggestions depend on the seed, the trial's number and the trials before it, not on when a process was started. So a
sweep that was killed and resumed suggests what it would have suggested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from envfleet._optional import require
from envfleet.randomize import Choice, Distribution, LogUniform, Uniform
from envfleet.train.config import TrainConfig
from envfleet.train.sweeping.folder import PrunerName, SweepFolder, SweepPlan
from envfleet.train.sweeping.space import is_whole

if TYPE_CHECKING:
    import optuna

_NAME = "sweep"
_LOCK_SECONDS = 60
"""How long to wait for somebody who looks at the database, such as a dashboard."""

_UNDISTURBED_TRIALS = 4
"""So many trials run to their end before any is compared with them."""

_FIRST_JUDGED = 2
"""The evaluation from which on a trial may be ended: after the first, most have learnt nothing yet."""

_TRIALS_TO_COMPARE = 4
"""Of fewer trials nobody can tell what made the difference."""

_PLAIN = (bool, int, float, str, type(None))


def optuna_module() -> Any:
    """Import Optuna, or say how to install it."""
    return require("optuna", "optuna")


@final
class Study:
    """Suggests settings, takes what came out, and remembers both.

    Args:
        folder: the sweep's; its database is made if it is not there.
        plan: what the sweep was told.
    """

    def __init__(self, folder: SweepFolder, plan: SweepPlan) -> None:
        self._optuna = optuna_module()
        self._plan = plan
        self._codes = {name: SettingCode(plan.config, name, found) for name, found in plan.search.items()}
        self._distributions = {name: code.distribution() for name, code in self._codes.items()}
        with self._quietly():
            storage = self._optuna.storages.RDBStorage(
                f"sqlite:///{folder.study.resolve()}", engine_kwargs={"connect_args": {"timeout": _LOCK_SECONDS}}
            )
            self.optuna: optuna.Study = self._optuna.create_study(
                storage=storage,
                study_name=_NAME,
                direction="maximize",
                load_if_exists=True,
                pruner=_pruner(self._optuna, plan.pruner),
            )
        self._close: Callable[[], None] = storage.engine.dispose

    def close(self) -> None:
        """Close the database."""
        self._close()

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """All trials so far, by number."""
        return [trial for trial in self.optuna.get_trials(deepcopy=False) if trial.state.name != "WAITING"]

    def unfinished(self) -> list[int]:
        """The numbers of the trials that were begun and did not end."""
        return [trial.number for trial in self.trials() if not trial.state.is_finished()]

    def suggest(self) -> int:
        """Begin another trial; returns its number."""
        with self._quietly():
            # First all values in one piece: a trial that is killed while its values are written finds the rest there.
            if not any(trial.state.name == "WAITING" for trial in self.optuna.get_trials(deepcopy=False)):
                self.optuna.enqueue_trial(self._next_values())
            return int(self.optuna.ask(self._distributions).number)

    def values(self, number: int) -> dict[str, Any]:
        """The settings that were suggested for a trial, as the configuration takes them."""
        trial = self._trial(number)
        with self._quietly():
            found = {name: _suggest(trial, name, entry) for name, entry in self._distributions.items()}
        return {name: self._codes[name].decode(value) for name, value in found.items()}

    def report(self, number: int, place: int, value: float) -> bool:
        """Take an evaluation of a trial under way; returns whether the trial is to end here.

        Args:
            number: the trial.
            place: which evaluation it is. A trial that was killed may repeat one, which changes nothing.
            value: the mean return.
        """
        trial = self._trial(number)
        if place not in self.optuna.get_trials(deepcopy=False)[number].intermediate_values:
            trial.report(value, place)
        return bool(trial.should_prune())

    def tell(self, number: int, state: str, value: float | None, facts: Mapping[str, Any]) -> None:
        """Note how a trial ended.

        Args:
            number: the trial.
            state: COMPLETE, PRUNED or FAIL.
            value: the mean return of its last evaluation.
            facts: what else is worth knowing of it, for readers of the database.
        """
        trial = self._trial(number)
        for name, fact in facts.items():
            trial.set_user_attr(name, fact)
        with self._quietly():
            self.optuna.tell(number, value if state == "COMPLETE" else None, state=self._optuna.trial.TrialState[state])

    def decoded(self, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
        """The settings of a trial that is over, as the configuration takes them."""
        return {name: self._codes[name].decode(value) for name, value in trial.params.items() if name in self._codes}

    def importance(self) -> dict[str, float]:
        """How much each setting explains of being among the best trials, in shares of 1; nothing of too few trials."""
        complete = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        if len(complete) < _TRIALS_TO_COMPARE or len({trial.value for trial in complete}) == 1:
            return {}
        # So that at least five trials count as the best, as Optuna advises, where there are ten or more.
        share = min(0.5, max(0.1, 5 / len(complete)))
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator(target_quantile=share)
        with self._quietly():
            warnings.filterwarnings("error", "Target and region quantiles", UserWarning)
            try:
                found = self._optuna.importance.get_param_importances(self.optuna, evaluator=evaluator)
            except UserWarning:  # as many trials are as good as the best: nothing tells them apart
                return {}
        return {name: float(value) for name, value in found.items()}

    def _trial(self, number: int) -> optuna.trial.Trial:
        frozen = self.optuna.get_trials(deepcopy=False)[number]
        return self._optuna.trial.Trial(self.optuna, frozen._trial_id)

    def _next_values(self) -> dict[str, Any]:
        """What Optuna would try next: first of all the configuration as it is, where its values are searched."""
        known = self.optuna.get_trials()
        if not known:
            own = {name: code.encode(getattr(self._plan.config, name)) for name, code in self._codes.items()}
            fixed = {name: value for name, value in own.items() if _contains(self._distributions[name], value)}
        else:
            fixed = {}
        seed = int(np.random.SeedSequence((self._plan.config.seed, len(known))).generate_state(1)[0])
        memory = self._optuna.create_study(
            direction="maximize", sampler=self._optuna.samplers.TPESampler(seed=seed, multivariate=True)
        )
        memory.add_trials(known)
        memory.enqueue_trial(fixed)
        return dict(memory.ask(self._distributions).params)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Keep Optuna from writing to the terminal, and from warning of what it calls experimental."""
        logging = self._optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                yield
        finally:
            logging.set_verbosity(before)


@final
class SettingCode:
    """How a setting is written in Optuna's study: options that are no plain values, such as widths, as texts.

    Args:
        config: the configuration.
        name: the setting.
        found: what is searched.
    """

    def __init__(self, config: TrainConfig, name: str, found: Distribution) -> None:
        assert isinstance(found, (Uniform, LogUniform, Choice))  # as check_search() has seen
        self._found = found
        self._whole = is_whole(config, name) and not isinstance(found, Choice)
        options = found.options if isinstance(found, Choice) else ()
        plain = all(isinstance(option, _PLAIN) for option in options)
        self._texts = {} if plain else {repr(option): option for option in options}

    def distribution(self) -> Any:
        """What Optuna draws from."""
        kinds = optuna_module().distributions
        if isinstance(self._found, Choice):
            return kinds.CategoricalDistribution(list(self._texts) or list(self._found.options))
        log = isinstance(self._found, LogUniform)
        low, high = self._found.low, self._found.high
        if self._whole:
            return kinds.IntDistribution(int(low), int(high), log=log)
        return kinds.FloatDistribution(low, high, log=log)

    def encode(self, value: Any) -> Any:
        """A value of the configuration as Optuna has it."""
        return repr(value) if self._texts else value

    def decode(self, value: Any) -> Any:
        """A value of Optuna's as the configuration takes it."""
        return self._texts[value] if self._texts else value


def _contains(distribution: Any, value: Any) -> bool:
    """Whether a value may be suggested: Optuna itself has no public way to ask."""
    if hasattr(distribution, "choices"):
        return any(value == option and type(value) is type(option) for option in distribution.choices)
    return isinstance(value, (int, float)) and bool(distribution.low <= value <= distribution.high)


def _suggest(trial: optuna.trial.Trial, name: str, entry: Any) -> Any:
    if hasattr(entry, "choices"):
        return trial.suggest_categorical(name, entry.choices)
    suggest = trial.suggest_int if isinstance(entry, optuna_module().distributions.IntDistribution) else None
    return (suggest or trial.suggest_float)(name, entry.low, entry.high, log=entry.log)


def _pruner(module: Any, name: PrunerName) -> Any:
    if name == "median":
        return module.pruners.MedianPruner(n_startup_trials=_UNDISTURBED_TRIALS, n_warmup_steps=_FIRST_JUDGED)
    if name == "halving":
        return module.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return module.pruners.NopPruner()
