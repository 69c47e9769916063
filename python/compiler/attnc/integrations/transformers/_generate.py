"""Models that write tokens, one after the other: compiled searches, or transformers' loops over compiled steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Optional, Sequence

import torch
import transformers
from attnc_runtime import InvalidArgument, TensorInfo, Unsupported
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin
from transformers.utils import logging

from ..._load import Model, load
from ..._search import Sample, Search
from ._decoder import CACHE, Decoder, StepCache
from ._folder import Folder
from ._model import AttncModel
from ._runner import as_input
from ._search import Unmapped, drawing, padded, search_of

logger = logging.get_logger(__name__)


class CompiledEncoder:
    """The encoder of a sequence-to-sequence model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.main_input_name = model.inputs[0].name

    def forward(self, **kwargs: Any) -> BaseModelOutput:
        # Called kwargs, transformers hands on what it has.
        feeds = {}
        for info in self.model.inputs:
            value = kwargs.get(info.name)
            if value is None and info.name == "attention_mask":
                value = torch.ones(kwargs[self.main_input_name].shape[:2], dtype=torch.int64)
            if value is None:
                raise InvalidArgument(f"the encoder has an input '{info.name}', which is not given")
            feeds[info.name] = as_input(value.to(getattr(torch, info.dtype)))
        outputs = self.model.run(feeds)
        return BaseModelOutput(last_hidden_state=outputs.get("last_hidden_state", next(iter(outputs.values()))))

    def __call__(self, **named: Any) -> BaseModelOutput:
        return self.forward(**named)


class Generator(AttncModel, GenerationMixin):
    """A model with ``generate``. What a compiled search gives the same tokens for is one; for the rest, transformers
    calls compiled steps, which is said once."""

    def __init__(self, config: PreTrainedConfig, folder: Folder, options: Dict[str, Any]) -> None:
        super().__init__(config, folder, options)
        self.generation_config = (
            GenerationConfig.from_pretrained(folder.path)
            if (folder.path / "generation_config.json").exists()
            else GenerationConfig.from_model_config(config)
        )
        self._encoder = CompiledEncoder(load(folder.encoder, **options)) if folder.encoder else None
        self.main_input_name = self._encoder.main_input_name if self._encoder else "input_ids"
        self._searches: Dict[Search, Model] = {}
        self._decoder: Optional[Decoder] = None

    def can_generate(self) -> bool:
        return True

    def get_encoder(self, modality: Optional[str] = None) -> Any:
        return self._encoder

    def get_experts_implementation(self) -> Dict[str, str]:
        return {}

    def _validate_model_kwargs(self, model_kwargs: Dict[str, Any]) -> None:
        known = {"input_ids", "attention_mask", "position_ids", CACHE, "token_type_ids"}
        if self._encoder is not None:
            known |= {"encoder_outputs", "decoder_input_ids", "decoder_attention_mask"}
            known |= {info.name for info in self._encoder.model.inputs}
        unknown = [name for name, value in model_kwargs.items() if value is not None and name not in known]
        if unknown:
            raise InvalidArgument(
                f"generate() has no argument '{unknown[0]}' with this model; beside those of GenerationConfig it takes "
                f"{', '.join(sorted(known))}"
            )
        types = model_kwargs.get("token_type_ids")
        if types is not None and bool(torch.as_tensor(types).any()):
            raise InvalidArgument("token_type_ids are not exported for generation: leave them out, or give zeros")

    # Transformers' loop.

    def decoder(self) -> Decoder:
        """What a loop calls: of a compiled search, if there is one."""
        if self._decoder is None:
            library = next(iter(self._searches.values()), None)
            self._decoder = Decoder(library or self._library(None), begins=self.folder.first is not None)
        return self._decoder

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: Dict[str, Any], *_: Any, **__: Any
    ) -> None:
        given = model_kwargs.get(CACHE)
        if given is not None and not isinstance(given, StepCache):
            raise InvalidArgument(f"{CACHE} expects the cache of an earlier call, not a {type(given).__name__}")

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        next_sequence_length: Optional[int] = None,
        past_key_values: Optional[StepCache] = None,
        is_first_iteration: Optional[bool] = False,
        cache: Optional[StepCache] = None,
        **kwargs: Any,
    ) -> Dict[str, Any]:
        cache = past_key_values if cache is None else cache
        tokens = input_ids if next_sequence_length is None else input_ids[:, -next_sequence_length:]
        held = 0 if cache is None else cache.get_seq_length()
        if held + tokens.shape[1] < input_ids.shape[1]:
            raise Unsupported(
                f"generate() of transformers {transformers.__version__} asks for a look at {tokens.shape[1]} of "
                f"{input_ids.shape[1]} tokens with a cache that holds {held}, and the tokens between would be lost: "
                "use_cache=False looks at all of them, and docs/transformers.md names the versions that are supported"
            )
        name = "input_ids" if self._encoder is None else "decoder_input_ids"
        return {**kwargs, name: tokens, CACHE: cache}

    def forward(
        self,
        input_ids: Optional[torch.Tensor] = None,
        attention_mask: Optional[torch.Tensor] = None,
        position_ids: Optional[torch.Tensor] = None,
        past_key_values: Optional[StepCache] = None,
        encoder_outputs: Any = None,
        decoder_input_ids: Optional[torch.Tensor] = None,
        decoder_attention_mask: Optional[torch.Tensor] = None,
        use_cache: Optional[bool] = None,
        cache: Optional[StepCache] = None,
        **named: Any,
    ) -> Any:
        """A look at tokens behind those of ``cache`` (or ``past_key_values``, as it was called before transformers
        5.24), which is changed and returned."""
        cache = past_key_values if cache is None else cache
        cache = StepCache(self.decoder()) if cache is None else cache
        kept = None if use_cache is False else cache
        given: Dict[str, Optional[torch.Tensor]] = {"position_ids": position_ids}
        if self._encoder is None:
            assert input_ids is not None
            given.update(input_ids=input_ids, attention_mask=attention_mask)
            if position_ids is not None:
                given["position_ids"] = position_ids[:, -input_ids.shape[1] :].expand(input_ids.shape)
            return CausalLMOutputWithPast(logits=self.decoder().look(cache, given), **{CACHE: kept})
        if encoder_outputs is None:
            main = {self.main_input_name: input_ids} if self.main_input_name == "input_ids" else {}
            encoder_outputs = self._encoder(**{**main, **named, "attention_mask": attention_mask})
        states = encoder_outputs[0]
        given.update(
            input_ids=decoder_input_ids,
            encoder_hidden_states=states,
            encoder_attention_mask=attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None,
            decoder_attention_mask=decoder_attention_mask,
        )
        self._check_mask(given["encoder_attention_mask"], self.decoder().step.inputs)
        logits = self.decoder().look(cache, given)
        return Seq2SeqLMOutput(logits=logits, encoder_last_hidden_state=states, **{CACHE: kept})

    def _assisted_decoding(self, *_: Any, **__: Any) -> Any:
        raise Unsupported(
            "generate() of a compiled model has no assisted decoding: leave assistant_model and "
            "prompt_lookup_num_tokens out"
        )

    _reads_masks = True

    def _check_mask(self, mask: Optional[torch.Tensor], inputs: Sequence[TensorInfo]) -> None:
        """A decoder that was exported without a mask takes all that its encoder made."""
        takes = any(info.name == "encoder_attention_mask" for info in inputs)
        if mask is not None and self._reads_masks and not takes and not bool(mask.all()):
            raise InvalidArgument(
                "attention_mask hides inputs of the encoder, and the decoder was exported without an input "
                "'encoder_attention_mask': give inputs of one length, or export it with attention_mask in the example"
            )

    # Compiled searches.

    def _library(self, search: Optional[Search]) -> Model:
        entries: Dict[str, Any] = self.folder.decoder()
        if search is not None and "first" not in entries:
            entries = {"first": entries["step"], **entries}
        return load(entries, own_state=True, search=search, **self._options)

    def _sample(self, input_ids: torch.Tensor, **named: Any) -> Any:
        found = self._searched(input_ids, 1, **named)
        return super()._sample(input_ids, **named) if found is None else found

    def _beam_search(self, input_ids: torch.Tensor, **named: Any) -> Any:
        settings: GenerationConfig = named["generation_config"]
        found = self._searched(input_ids, settings.num_beams, **named)
        if found is None:
            if named.get(CACHE) is None and settings.use_cache is not False:
                named[CACHE] = StepCache(self.decoder(), settings.num_beams)
            return super()._beam_search(input_ids, **named)
        return found

    def _searched(
        self,
        input_ids: torch.Tensor,
        width: int,
        *,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        streamer: Any = None,
        synced_gpus: bool = False,
        **inputs: Any,
    ) -> Optional[torch.Tensor]:
        """The tokens of a compiled search, None where there is none for it. Rows come ``width`` times each."""
        prompt = input_ids.shape[1]
        try:
            if streamer is not None:
                raise Unmapped("streamer")
            for name in (CACHE, "inputs_embeds", "decoder_attention_mask"):
                if inputs.get(name) is not None:
                    raise Unmapped(f"input '{name}'")
            mask = inputs.get("attention_mask")
            if self._encoder is None and mask is not None and not mask[:, -1].all():
                raise Unmapped("prompts padded on the right")
            search = search_of(generation_config, logits_processor, stopping_criteria, prompt, "first")
        except Unmapped as reason:
            logger.warning_once(f"attnc: transformers' loop calls compiled steps, as compiled searches have no {reason}")
            return None
        if search not in self._searches:
            self._searches[search] = self._library(search)
        model = self._searches[search]
        feeds = self._search_inputs(model, input_ids[::width], width, generation_config, inputs)
        if isinstance(search, Sample):
            feeds.update(drawing(logits_processor))
        found = model.generate(**feeds)
        tokens, lengths = found["tokens"], found["lengths"].flatten()
        pad, eos = generation_config._pad_token_tensor, generation_config._eos_token_tensor
        # As transformers fills: behind a beam, a padding token of 0 counts as none.
        fill = 0 if pad is None else int(pad)
        if width > 1:
            fill = (fill or int(eos[0])) if eos is not None else -1
        made = padded(tokens.reshape(-1, tokens.shape[-1]), lengths, fill)
        return torch.cat([input_ids[::width].repeat_interleave(len(made) // len(input_ids[::width]), 0), made], dim=1)

    def _search_inputs(
        self, model: Model, tokens: torch.Tensor, width: int, settings: GenerationConfig, inputs: Dict[str, Any]
    ) -> Dict[str, torch.Tensor]:
        def rows(name: str) -> Optional[torch.Tensor]:
            value = inputs.get(name)
            if value is None or value.shape[0] == 1:
                return None if value is None else value.expand(len(tokens), *value.shape[1:])
            return torch.as_tensor(value[::width])

        mask = rows("attention_mask")
        given: Dict[str, Optional[torch.Tensor]] = {"input_ids": tokens}
        given["max_length"] = torch.tensor(settings.max_length - tokens.shape[1])
        if self._encoder is None:
            mask = torch.ones_like(tokens) if mask is None else mask
            positions = rows("position_ids")
            given.update(attention_mask=mask, position_ids=_positions(mask) if positions is None else positions)
        else:
            states = inputs["encoder_outputs"][0][::width]
            if mask is None or mask.dim() != 2:
                mask = torch.ones(states.shape[:2], dtype=torch.int64)
            self._check_mask(mask, model.entries["generate"].inputs)
            given.update(encoder_hidden_states=states, encoder_attention_mask=mask)
        feeds = {}
        for info in model.entries["generate"].inputs:
            value = given.get(info.name)
            if value is None and info.name in ("seed", "temperature", "top_k", "top_p"):
                continue  # of Sample
            if value is None and info.name.startswith("past_key_values."):
                value = torch.zeros([size if isinstance(size, int) else 0 for size in (len(tokens), *info.shape[1:])])
            if value is None:
                raise InvalidArgument(f"the model has an input '{info.name}', which is not given")
            feeds[info.name] = as_input(value.to(getattr(torch, info.dtype)))
        return feeds


def _positions(mask: torch.Tensor) -> torch.Tensor:
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 0)


class WhisperGenerator(Generator, WhisperGenerationMixin):
    """Whisper, whose own ``generate`` cuts the sound into pieces."""

    _reads_masks = False

    def __init__(self, config: PreTrainedConfig, folder: Folder, options: Dict[str, Any]) -> None:
        super().__init__(config, folder, options)
        strides = SimpleNamespace(conv1=SimpleNamespace(stride=(1,)), conv2=SimpleNamespace(stride=(2,)))
        self.model = SimpleNamespace(encoder=strides, config=config)
