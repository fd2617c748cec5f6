export INTEGRITY_OUTBOX_DATABASE=sqlite:documents.db
touch documents.db
integrity outbox install --apply
