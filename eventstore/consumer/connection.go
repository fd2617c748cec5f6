package consumer

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore/cluster"
)

// Sharded is a Source whose row belongs to a shard. On Citus its transactions run on the node that holds the shard and
// name the parts of tables there. The shard cannot move until they end.
type Sharded interface {
	Source
	InShard() domain.Shard
}

// databases holds the sql.DBs in which the library opens the topics' transactions.
type databases struct {
	consumer *Consumer
	shared   *sql.DB
	opened   []*sql.DB
}

func (c *Consumer) databases() *databases {
	d := &databases{consumer: c}
	d.shared = d.open(limitedConnector{Connector: stdlib.GetPoolConnector(c.Pool)})
	d.shared.SetMaxOpenConns(int(c.Pool.Config().MaxConns / 2))
	return d
}

func (d *databases) open(from driver.Connector) *sql.DB {
	db := sql.OpenDB(from)
	db.SetMaxIdleConns(0) // the pools keep idle connections
	d.opened = append(d.opened, db)
	return db
}

func (d *databases) of(t *topic) *beginner {
	if s, ok := t.Source.(Sharded); ok && d.consumer.Nodes != nil {
		return &beginner{DB: d.open(nodeConnector{d.shared.Driver(), d.consumer.Nodes, s.InShard(), t}), begin: t.Begin()}
	}
	return &beginner{DB: d.shared, begin: t.Begin()}
}

func (d *databases) close() {
	for _, db := range d.opened {
		_ = db.Close() // it holds no connection
	}
}

// beginner creates the row of a source before its first transaction, not at the start, so that an unreachable node
// delays only its own shards.
type beginner struct {
	*sql.DB
	begin Query // empty once the row exists
}

// BeginTx must be called by one goroutine at a time.
func (b *beginner) BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	if !b.begin.IsZero() {
		tx, err := b.DB.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		if _, err = tx.ExecContext(ctx, b.begin.Query, b.begin.Args...); err != nil {
			err = errors.Join(err, tx.Rollback())
		} else {
			err = tx.Commit()
		}
		if err != nil {
			return nil, say.Errorf("begin: %w", err)
		}
		b.begin = Query{}
	}
	return b.DB.BeginTx(ctx, options)
}

// nodeConnector connects to the node that holds a shard.
type nodeConnector struct {
	driver driver.Driver
	nodes  *cluster.Nodes
	shard  domain.Shard
	topic  *topic
}

func (c nodeConnector) Driver() driver.Driver { return c.driver }

func (c nodeConnector) Connect(ctx context.Context) (driver.Conn, error) {
	pool, piece, err := c.nodes.At(ctx, uint16(c.shard))
	if err != nil {
		return nil, err
	}
	c.topic.piece = piece
	conn, err := limitedConnector{stdlib.GetPoolConnector(pool), piece, c.nodes}.Connect(ctx)
	if err != nil {
		return nil, say.Errorf("connect to the node of shard %d: %w", c.shard, err)
	}
	return conn, nil
}

// limitedConnector, limitedConn and limitedTx close the connection of a transaction that is open for maxOpen, because
// the library begins and commits without a deadline. On a node they hold the piece.
type limitedConnector struct {
	driver.Connector
	piece *cluster.Piece // nil: the tables themselves
	nodes *cluster.Nodes
}

type limitedConn struct {
	*stdlib.Conn
	piece *cluster.Piece
	nodes *cluster.Nodes
}

type limitedTx struct {
	driver.Tx
	end *time.Timer
}

func (c limitedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return limitedConn{conn.(*stdlib.Conn), c.piece, c.nodes}, nil
}

func (c limitedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	socket := c.Conn.Conn().PgConn().Conn()
	end := time.AfterFunc(maxOpen, func() { _ = socket.Close() })
	tx, err := c.Conn.BeginTx(ctx, options)
	if err == nil && c.piece != nil {
		if err = c.hold(ctx); err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err != nil {
		end.Stop()
		if c.piece != nil && cluster.Moved(err) {
			c.nodes.Forget(c.piece)
			err = driver.ErrBadConn // database/sql takes another connection, to the piece's current node
		}
		return nil, err
	}
	return limitedTx{tx, end}, nil
}

func (c limitedConn) hold(ctx context.Context) error {
	b := &pgx.Batch{}
	c.piece.Hold(b)
	return c.Conn.Conn().SendBatch(ctx, b).Close()
}

func (c limitedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	text, err := c.piece.Text(query)
	if err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, text, args)
}

func (c limitedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	text, err := c.piece.Text(query)
	if err != nil {
		return nil, err
	}
	return c.Conn.ExecContext(ctx, text, args)
}

func (t limitedTx) Commit() error {
	defer t.end.Stop()
	return t.Tx.Commit()
}

func (t limitedTx) Rollback() error {
	defer t.end.Stop()
	return t.Tx.Rollback()
}
