"""Parameters of a network as bytes, in the safetensors format: numbers, never code."""

from types import ModuleType

from torch import Tensor, nn

from fferm.errors import MissingDependencyError, PersistenceError


def pack(module: nn.Module) -> bytes:
    """Return the parameters and buffers of a module as bytes."""
    # Copies: the format refuses tensors that share memory, as tied weights do.
    state = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in module.state_dict().items()
    }
    packed: bytes = _safetensors().save(state)
    return packed


def unpack(packed: bytes) -> dict[str, Tensor]:
    """Return what `pack` wrote."""
    state: dict[str, Tensor] = _safetensors().load(packed)
    return state


def load(state: dict[str, Tensor], module: nn.Module) -> nn.Module:
    """Return a module with the parameters of a state, in evaluation mode."""
    floating = [t.dtype for t in state.values() if t.is_floating_point()]
    try:
        module = module.to(floating[0]) if floating else module
        module.load_state_dict(state)
    except RuntimeError as error:
        raise PersistenceError(
            f"The saved parameters do not fit {type(module).__name__} ({error}). Pass "
            "the module that the model was trained with."
        ) from error
    return module.eval()


def _safetensors() -> ModuleType:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingDependencyError(
            "Networks are saved with the package safetensors, which is not installed. "
            'Run: pip install "fferm[torch]"'
        ) from error
    return safetensors.torch
