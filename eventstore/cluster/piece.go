package cluster

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Piece is the place of the rows of some shards: a node, and the name that each distributed table's part has there. Nil
// stands for the tables themselves.
type Piece struct {
	id    int64 // of shard_heads' part
	from  int32 // the first hash of a shard that belongs to it
	to    int32 // the last
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

// Node tells the nodes apart.
func (p *Piece) Node() int32 { return p.group }

// Address is that of the node's server.
func (p *Piece) Address() string { return net.JoinHostPort(p.host, strconv.Itoa(int(p.port))) }

func (p *Piece) like(is *Piece, tables, parts []string) bool {
	same := p.id == is.id && p.from == is.from && p.to == is.to && p.group == is.group && p.host == is.host &&
		p.port == is.port && len(p.parts) == len(tables)
	for i, table := range tables {
		same = same && p.parts[table] == parts[i]
	}
	return same
}

// holdFunction is made by migrations.Distribute. It locks a piece against the end of a move, and refuses a piece that
// its node does not hold.
const holdFunction = "hold_piece"

// moved is the SQLSTATE of that refusal.
const moved = "IL001"

// undefinedTable is the SQLSTATE of a part that is gone, some time after its move.
const undefinedTable = "42P01"

// Moved reports whether an error says that the piece is on another node by now.
func Moved(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refused.Code == moved || refused.Code == undefinedTable)
}

// Hold queues what must come first in a transaction on the node: until its end the piece stays there.
func (p *Piece) Hold(b *pgx.Batch) {
	if p != nil {
		b.Queue("SELECT "+holdFunction+"($1)", p.id)
	}
}

// holding is where a context says which piece is held.
type holding struct{}

// Holding says that until the context ends a transaction holds a piece. What reads it beside the transaction must not
// hold it too: a move that waits for the transaction would make the reader wait for the move, and the transaction for
// its reader.
func Holding(ctx context.Context, p *Piece) context.Context {
	return context.WithValue(ctx, holding{}, p)
}

// HeldIn reports whether a context says so of a piece, on the same node.
func (p *Piece) HeldIn(ctx context.Context) bool {
	held, _ := ctx.Value(holding{}).(*Piece)
	return held != nil && held.id == p.id && held.group == p.group && held.host == p.host && held.port == p.port
}
