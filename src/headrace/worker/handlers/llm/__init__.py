"""`llm_service`: one chat completion on any OpenAI-compatible endpoint, or on the built-in model `echo`.

- config.py: what a node may say, and the request that it becomes
- models.py: which endpoint a model's name means, and which key may go there
- service.py: the call, and what to make of its outcome
- completion.py: reading an answer, whole or streamed
- structured.py: JSON answers and their schemas
- echo.py: the model that needs no network
"""

from headrace.worker.handlers.llm.config import LlmConfig
from headrace.worker.handlers.llm.service import LlmService, llm_service

__all__ = ["LlmConfig", "LlmService", "llm_service"]
