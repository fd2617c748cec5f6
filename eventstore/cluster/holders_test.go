package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
)

// TestNodesAreReachedAsTheURLSays: every way to connect that a URL allows leads to the node, and none elsewhere.
func TestNodesAreReachedAsTheURLSays(t *testing.T) {
	for _, test := range []struct{ url, nodes, host, want string }{
		{"postgres://u@db0,db1/d", "", "n1", "TLS of any to n1:5433, n1:5433"},
		{"postgres://u@db0/d?sslmode=prefer", "", "n1", "TLS of any to n1:5433, n1:5433"},
		{"postgres://u@db0/d?sslmode=allow", "", "n1", "n1:5433, TLS of any to n1:5433"},
		{"postgres://u@db0/d?sslmode=require", "", "n1", "TLS of any to n1:5433"},
		{"postgres://u@db0/d?sslmode=verify-full", "", "n1", "TLS of n1 to n1:5433"},
		{"postgres://u@db0/d?sslmode=disable", "", "n1", "n1:5433"},
		{"postgres:///d?host=/run/postgresql&sslmode=verify-full", "", "n1", "TLS of n1 to n1:5433"},
		{"postgres:///d?host=/run/postgresql", "", "n1", "TLS of any to n1:5433, n1:5433"},
		{"postgres:///d?host=/run/postgresql&sslmode=require", "", "/run/n1", "/run/n1:5433"},
		{"postgres://u@db0/d?sslmode=disable", "", "fd00::1", "fd00::1:5433"},
		{"postgres://u@db0/d", "postgres://x@{host}:{port}/d?sslmode=disable", "n1", "n1:5433"},
		{"postgres://u@db0/d", "postgres://x@{host}:{port}/d?sslmode=disable", "fd00::1", "fd00::1:5433"},
		{"postgres://u@db0/d", "postgres://x@[{host}]:{port}/d?sslmode=disable", "fd00::1", "fd00::1:5433"},
		{"postgres://u@db0/d", "postgres://x@/d?host={host}&port={port}&sslmode=disable", "fd00::1", "fd00::1:5433"},
	} {
		p := At(test.url)
		p.Nodes = connect.Fixed(test.nodes)
		pool, err := p.node(test.host, 5433).ReadPool(context.Background(), 1)
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		config := pool.Config().ConnConfig
		pool.Close()
		way := func(host string, port uint16, encrypted *tls.Config) string {
			switch {
			case encrypted == nil:
				return fmt.Sprintf("%s:%d", host, port)
			case encrypted.InsecureSkipVerify:
				return fmt.Sprintf("TLS of any to %s:%d", host, port)
			default:
				return fmt.Sprintf("TLS of %s to %s:%d", encrypted.ServerName, host, port)
			}
		}
		ways := []string{way(config.Host, config.Port, config.TLSConfig)}
		for _, f := range config.Fallbacks {
			ways = append(ways, way(f.Host, f.Port, f.TLSConfig))
		}
		if got := strings.Join(ways, ", "); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// TestPiecesAreThoseOfCitus: the piece of each shard is the one that Citus itself would use.
func TestPiecesAreThoseOfCitus(t *testing.T) {
	pgtest.Citus(t)
	ctx := context.Background()
	h, err := At(pgtest.New(t)).Holders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	pieces := map[int64]bool{}
	for shard := range uint16(64) {
		piece, err := h.Place(ctx, shard)
		if err != nil {
			t.Fatal(err)
		}
		var want int64
		if err := h.asking.QueryRow(
			ctx, "SELECT get_shard_id_for_distribution_column('public.shard_heads', $1::int)", shard,
		).Scan(&want); err != nil || piece.id != want {
			t.Errorf("shard %d: piece %d, not %d: %v", shard, piece.id, want, err)
		}
		pieces[piece.id] = true
	}
	if len(pieces) < 2 || h.asked != 1 {
		t.Errorf("%d pieces, %d questions", len(pieces), h.asked)
	}
}

// catalogue makes a database look like the coordinator of a Citus cluster with two nodes: four pieces, alternating
// between nodes 1 and 2.
func catalogue(t *testing.T) (url string) {
	t.Helper()
	pgtest.OneServer(t, "its catalogue is that of Citus")
	url = pgtest.New(t)
	parsed, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, url, fmt.Sprintf(`CREATE TABLE pg_dist_partition (logicalrelid regclass, colocationid int);
		CREATE TABLE pg_dist_shard (logicalrelid regclass, shardid bigint, shardminvalue text, shardmaxvalue text);
		CREATE TABLE pg_dist_placement (shardid bigint, shardstate int, groupid int);
		CREATE TABLE pg_dist_node (groupid int, nodename text, nodeport int, noderole text, nodecluster text);
		CREATE TABLE pg_dist_local_group (groupid int);
		INSERT INTO pg_dist_partition SELECT name::regclass, 1 FROM unnest('{shard_heads,events,feed}'::text[]) name;
		INSERT INTO pg_dist_shard SELECT logicalrelid, 100 + n, (-2147483648 + n * 1073741824)::text, (-2147483648 + (n + 1) * 1073741824 - 1)::text
			FROM pg_dist_partition, generate_series(0, 3::bigint) n;
		INSERT INTO pg_dist_placement SELECT 100 + n, 1, 1 + n %% 2 FROM generate_series(0, 3) n;
		INSERT INTO pg_dist_node SELECT n, '%s', %d, 'primary', 'default' FROM generate_series(0, 2) n;
		CREATE FUNCTION worker_hash(int) RETURNS int LANGUAGE sql AS 'SELECT hashint4($1)';
		CREATE FUNCTION shard_name(regclass, bigint) RETURNS text LANGUAGE sql AS $$SELECT $1::text || '_' || $2$$;
		CREATE FUNCTION hold_piece(bigint) RETURNS void LANGUAGE sql AS '';
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET citus.cluster_name = ''default''', current_database()); END $$;
		GRANT SELECT ON ALL TABLES IN SCHEMA public TO integrity_service`, parsed.Host, parsed.Port))
	return url
}

// silence stops the cluster from answering any question until release is called.
func silence(t *testing.T, url string, meanwhile ...string) (release func()) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(ctx) })
	for _, statement := range append([]string{"BEGIN", "LOCK pg_dist_node"}, meanwhile...) {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		if _, err := conn.Exec(ctx, "COMMIT"); err != nil {
			t.Fatal(err)
		}
	}
}

func asked(t *testing.T, url string) {
	t.Helper()
	pgtest.Eventually(t, "the question is asked", func() (bool, error) {
		return pgtest.Ask[bool](
			url, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'pg_dist_node'::regclass AND NOT granted)",
		)
	})
}

func holdersOf(t *testing.T, url string) *Holders {
	t.Helper()
	h, err := At(url).Holders(context.Background())
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	t.Cleanup(h.Close)
	return h
}

// expire makes the cached answer expire.
func (h *Holders) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = time.Now()
}

// TestOneQuestionAnswersForAllShards: callers that ask during a question wait for its answer, which covers every shard
// and is cached.
func TestOneQuestionAnswersForAllShards(t *testing.T) {
	url := catalogue(t)
	h := holdersOf(t, url)
	ctx := context.Background()
	answer := silence(t, url)
	const shards = 40
	found, failed := make(chan *Piece, shards), make(chan error, shards)
	for shard := range uint16(shards) {
		go func() {
			piece, err := h.Place(ctx, shard)
			found <- piece
			failed <- err
		}()
	}
	asked(t, url)
	answer()
	pieces := map[int64]int32{}
	for range shards {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		piece := <-found
		pieces[piece.id] = piece.Node()
	}
	silence(t, url)
	for shard := range uint16(shards) {
		if piece, err := h.Place(ctx, shard); err != nil || pieces[piece.id] != piece.Node() {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
	if h.asked != 1 || len(pieces) != 4 || pieces[100] != 1 || pieces[101] != 2 {
		t.Errorf("%d questions, pieces %v", h.asked, pieces)
	}
}

// TestWhatIsKnownStaysTrue: while the cluster does not answer, a shard's last known place is used, unless its node has
// refused it.
func TestWhatIsKnownStaysTrue(t *testing.T) {
	url := catalogue(t)
	h := holdersOf(t, url)
	ctx := context.Background()
	of := map[int64]uint16{}
	known := map[int64]*Piece{}
	for shard := range uint16(40) {
		piece, err := h.Place(ctx, shard)
		if err != nil {
			t.Fatal(err)
		}
		of[piece.id], known[piece.id] = shard, piece
	}
	answer := silence(t, url)
	h.expire()
	for id, shard := range of {
		if piece, err := h.Place(ctx, shard); err != nil || piece != known[id] {
			t.Errorf("%v, %v", piece, err)
		}
	}
	h.Forget(known[100])
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if piece, err := h.Place(impatient, of[100]); err == nil {
		t.Errorf("a piece that its node refused is on node %d still", piece.Node())
	}
	if piece, err := h.Place(ctx, of[101]); err != nil || piece != known[101] {
		t.Errorf("another piece: %v, %v", piece, err)
	}
	answer()
	if piece, err := h.Place(ctx, of[100]); err != nil || piece != known[100] {
		t.Errorf("after an answer that says the same: %v, %v", piece, err)
	}
	nowhere := h.Nodes(1, func(_ *Primary, ctx context.Context, conns int) (*pgxpool.Pool, error) {
		return At("postgres:///nowhere?host=/nowhere").ReadPool(ctx, conns)
	})
	if _, _, err := nowhere.Acquire(ctx, of[101]); err == nil || h.due.After(h.since.Add(askAgain)) {
		t.Errorf("a node is away, and the cluster is asked after %s: %v", h.due.Sub(h.since), err)
	}
}

// TestAMoveIsAskedForUntilItIsAnswered: one caller's impatience does not end the question for the others.
func TestAMoveIsAskedForUntilItIsAnswered(t *testing.T) {
	url := catalogue(t)
	h := holdersOf(t, url)
	ctx := context.Background()
	from, err := h.Place(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := 3 - from.Node()
	answer := silence(t, url, fmt.Sprintf("UPDATE pg_dist_placement SET groupid = %d WHERE shardid = %d", to, from.id))
	h.Forget(from)
	impatient, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		_, err := h.Place(impatient, 0)
		left <- err
	}()
	asked(t, url)
	patient := make(chan *Piece, 1)
	go func() {
		piece, err := h.Place(ctx, 0)
		if err != nil {
			t.Error(err)
		}
		patient <- piece
	}()
	leave()
	if err := <-left; err == nil {
		t.Error("no error of a context that has ended")
	}
	answer()
	if piece := <-patient; piece == nil || piece.Node() != to || h.asked != 2 {
		t.Errorf("piece %+v after %d questions, must be on node %d", piece, h.asked, to)
	}
	h.Forget(from) // by a caller that was refused before the answer
	silence(t, url)
	if piece, err := h.Place(ctx, 0); err != nil || piece.Node() != to {
		t.Errorf("%v, %v", piece, err)
	}
}

// TestSecondCopiesAreRefused: nothing is written to a piece that also has a copy on another node.
func TestSecondCopiesAreRefused(t *testing.T) {
	url := catalogue(t)
	pgtest.Exec(
		t, url,
		"INSERT INTO pg_dist_placement SELECT shardid, shardstate, 3 - groupid FROM pg_dist_placement WHERE shardid = 102",
	)
	if piece, err := holdersOf(t, url).Place(context.Background(), 0); err == nil ||
		!strings.Contains(err.Error(), "the piece 102 is on several nodes") {
		t.Errorf("%v, %v", piece, err)
	}
}

// TestTheCoordinatorIsFoundAgain: a process whose URL names a worker follows the coordinator to another address.
func TestTheCoordinatorIsFoundAgain(t *testing.T) {
	url := catalogue(t)
	ctx := context.Background()
	first, second := pgtest.NewProxy(t, url), pgtest.NewProxy(t, url)
	isAt := func(proxy *pgtest.Proxy) {
		t.Helper()
		config, err := pgx.ParseConfig(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		pgtest.Exec(t, url, fmt.Sprintf("UPDATE pg_dist_node SET nodename = '%s' WHERE groupid = 0", config.Host))
	}
	pgtest.Exec(t, url, "INSERT INTO pg_dist_local_group VALUES (1)")
	isAt(first)
	coordinator, err := Coordinator(ctx, connect.Fixed(url), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := At(coordinator())
	p.Entry = connect.Fixed(url)
	pool, err := p.ReadPool(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	through := func(proxy *pgtest.Proxy) func() (bool, error) {
		return func() (bool, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return false, nil // it is still unreachable
			}
			defer conn.Release()
			return strings.Contains(proxy.URL, strings.ReplaceAll(conn.Conn().Config().Host, "/", "%2F")), conn.Ping(ctx)
		}
	}
	pgtest.Eventually(t, "the coordinator at its first address", through(first))
	if !p.entry.missing.IsZero() {
		t.Error("the coordinator answers, and is looked for")
	}
	first.Set(pgtest.Weather{Away: true})
	isAt(second)
	first.Cut()
	pgtest.Eventually(t, "the coordinator at its second address", through(second))
	replica, err := p.ReplicaPool(ctx, connect.Fixed(url), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Close()
	if err := replica.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if host := conn.Conn().Config().Host; host != replica.Config().ConnConfig.Host {
			t.Errorf("a replica's connection leads to %s", host)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestTheCoordinatorIsLookedForOnceInASecond: the worker is asked while the coordinator does not answer, and only then.
func TestTheCoordinatorIsLookedForOnceInASecond(t *testing.T) {
	var e entrance
	looks := func(when string, want bool) {
		t.Helper()
		if got := e.look(); got != want {
			t.Errorf("%s: it is looked for: %t", when, got)
		}
	}
	later := func() { e.missing = e.missing.Add(-2 * askAgain) }
	looks("at first", false)
	later()
	looks("it has not answered", true)
	looks("at once again", false)
	later()
	looks("a second later", true)
	e.reached()
	looks("it has answered", false)
}

// TestForbiddenScansAreNotCompiled: if the only plan is a discouraged scan, its cost would make PostgreSQL compile
// every statement.
func TestForbiddenScansAreNotCompiled(t *testing.T) {
	ctx := context.Background()
	url := pgtest.New(t)
	p := At(url)
	pgtest.Exec(t, url, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$")
	direct := At(url)
	direct.direct = true
	for name, open := range map[string]func() (*pgxpool.Pool, error){
		"commit":  func() (*pgxpool.Pool, error) { return p.CommitPool(ctx, 1) },
		"queue":   func() (*pgxpool.Pool, error) { return p.QueuePool(ctx, 1) },
		"node":    func() (*pgxpool.Pool, error) { return direct.ReadPool(ctx, 1) },
		"read":    func() (*pgxpool.Pool, error) { return p.ReadPool(ctx, 1) },
		"rebuild": func() (*pgxpool.Pool, error) { return p.RebuildPool(ctx, 1) },
		"replica": func() (*pgxpool.Pool, error) { return p.ReplicaPool(ctx, connect.Fixed(url), 1) },
	} {
		pool, err := open()
		if err != nil {
			t.Fatal(err)
		}
		var set []string
		err = pool.QueryRow(ctx, "SELECT ARRAY[current_setting('enable_seqscan'), current_setting('jit')]").Scan(&set)
		pool.Close()
		if err != nil || !slices.Equal(set, []string{"off", "off"}) {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
}
