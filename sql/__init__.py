"""Tables, views and triggers as `.sql` files, and what applies, loads and checks them."""
