node feed.mjs
