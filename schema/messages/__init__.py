"""A message: headers and a body, decoded into rows or into reasons for refusing them."""
