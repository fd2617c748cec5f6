node register.mjs
