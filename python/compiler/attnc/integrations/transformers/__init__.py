"""attnc behind transformers' interface: an export format, and models that generate.

    from attnc.integrations.transformers import AttncExporter

    AttncExporter().export(model, inputs, AttncConfig()).save_pretrained("folder")
    exported = transformers.exporters.ExportedModel.from_pretrained("folder")    # compiled, once
    outputs = exported(**inputs)

Importing this module adds the format "attnc" to transformers' exporters.
"""

from transformers.exporters.auto import EXPORT_BACKENDS, register_backend

from ._export import FORMAT, AttncConfig, AttncExporter
from ._model import AttncModel
from ._runner import AttncModelRunner

if FORMAT not in EXPORT_BACKENDS:
    register_backend(AttncExporter, AttncModelRunner)

__all__ = ["AttncConfig", "AttncExporter", "AttncModel", "AttncModelRunner"]
