"""What a user can do wrong, as exceptions.

Each message is one line saying what is wrong, where, both values, and what to do. A command prints
that line and exits with status 2; a program catches ``ValueError`` or ``FileNotFoundError``.
"""


class ConfigError(ValueError):
    """A schema, recipe or command line that contradicts itself or has an unknown field."""


class UnstatedError(ConfigError):
    """Something that a file leaves open and that must not be guessed: it has to be stated."""

    def __init__(self, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields
        """The schema's fields that would answer it; none where something else would."""


class InputError(ValueError):
    """Images, labels or call arguments that do not fit the model."""


class WeightsError(ValueError):
    """Weights that are damaged, of the wrong kind of file, or do not fit the model."""


class DataError(ValueError):
    """A data set that cannot be read or does not fit the model."""


class CheckpointError(ValueError):
    """A training run that cannot be resumed as asked."""


class TrainingError(ValueError):
    """A training run that cannot go on."""


class MissingFileError(FileNotFoundError):
    """A file or folder that was named but is not there."""

    def __str__(self) -> str:
        return str(self.args[0])


USER_ERRORS = (
    ConfigError,
    InputError,
    WeightsError,
    DataError,
    CheckpointError,
    TrainingError,
    MissingFileError,
)
"""Everything above: what a command prints as one line."""
