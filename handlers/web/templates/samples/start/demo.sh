integrity serve --demo
