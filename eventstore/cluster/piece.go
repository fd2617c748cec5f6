package cluster

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Piece is the place of the rows of a range of shards: a node, and the name of each distributed table's part there. Nil
// stands for the tables themselves.
type Piece struct {
	id    int64 // of the part of shard_heads
	from  int32 // the first hash of its shards
	to    int32 // the last hash of its shards
	group int32
	host  string
	port  uint16
	parts map[string]string // by table

	statements statements
}

// NewPiece returns a piece on no particular node, whose tables have these parts.
func NewPiece(tables, parts []string) *Piece {
	p := &Piece{parts: map[string]string{}}
	for i, table := range tables {
		p.parts[table] = parts[i]
	}
	return p
}

// Node returns the number of the node.
func (p *Piece) Node() int32 { return p.group }

// Address returns the address of the node's server.
func (p *Piece) Address() string { return net.JoinHostPort(p.host, strconv.Itoa(int(p.port))) }

func (p *Piece) like(is *Piece, tables, parts []string) bool {
	same := p.id == is.id && p.from == is.from && p.to == is.to && p.group == is.group && p.host == is.host &&
		p.port == is.port && len(p.parts) == len(tables)
	for i, table := range tables {
		same = same && p.parts[table] == parts[i]
	}
	return same
}

// holdFunction is created by migrations.Distribute. It locks a piece so that no move of it can finish, and fails if the
// node does not hold the piece.
const holdFunction = "hold_piece"

// moved is the SQLSTATE of that failure.
const moved = "IL001"

// undefinedTable is the SQLSTATE if a part was removed some time after its move.
const undefinedTable = "42P01"

// Moved reports whether an error means that the piece has moved to another node.
func Moved(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refused.Code == moved || refused.Code == undefinedTable)
}

// Hold queues the statement that must come first in a transaction on the node. It keeps the piece there until the
// transaction ends.
func (p *Piece) Hold(b *pgx.Batch) {
	if p != nil {
		b.Queue("SELECT "+holdFunction+"($1)", p.id)
	}
}

// holding is the context key of the held piece.
type holding struct{}

// Holding returns a context that records that a transaction holds a piece until the context ends. Reads beside the
// transaction must not hold the piece as well. Otherwise a deadlock is possible: the move waits for the transaction,
// the read for the move, and the transaction for the read.
func Holding(ctx context.Context, p *Piece) context.Context {
	return context.WithValue(ctx, holding{}, p)
}

// HeldIn reports whether the context records that the piece is held on the same node.
func (p *Piece) HeldIn(ctx context.Context) bool {
	held, _ := ctx.Value(holding{}).(*Piece)
	return held != nil && held.id == p.id && held.group == p.group && held.host == p.host && held.port == p.port
}
