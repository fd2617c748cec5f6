integrity outbox check
integrity outbox run --once
