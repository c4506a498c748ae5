"""Row -> Request: is this row something that can be asked, and how?

`recipe.py` is the way in; a row then meets lines.py (JSON), ids.py, asked.py (sampling, schemas.py),
and by its shape columns.py, jinja_prompt.py, batch_lines.py, shapes.py and conversation.py.
"""

from rowmill.validate.recipe import Recipe, compile_recipe, validate

__all__ = ["Recipe", "compile_recipe", "validate"]
