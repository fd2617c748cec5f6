package clustertest

import (
	"context"
	neturl "net/url"
	"os"
	"path/filepath"
	"testing"

	"integrityledger/eventstore/cluster"
	"integrityledger/eventstore/cluster/connect"
	"integrityledger/eventstore/pgtest"
)

// Through returns connections to the nodes that hold the shards 0 to 3, with a proxy in front of the node that holds a
// shard. Each node's socket directory is replaced by a link to it or to the proxy's.
func Through(t *testing.T, url string, shard uint16) (*pgtest.Proxy, *cluster.Holders) {
	t.Helper()
	ctx := context.Background()
	links, err := os.MkdirTemp("", "l") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(links) })
	direct, err := cluster.At(url).Holders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	plain := direct.Nodes(1, (*cluster.Primary).ReadPool)
	link := func(shard uint16, to func(node string) string) {
		conn, _, err := plain.Acquire(ctx, shard)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		dir := filepath.Join(links, conn.Conn().Config().Host)
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to(conn.Conn().Config().ConnString()), dir); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	socket := func(url string) string {
		parsed, err := neturl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Query().Get("host")
	}
	var proxy *pgtest.Proxy
	link(shard, func(node string) string {
		proxy = pgtest.NewProxy(t, node)
		return socket(proxy.URL)
	})
	for other := range uint16(4) {
		link(other, socket)
	}
	template, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := template.Query()
	query.Del("host")
	query.Del("port")
	template.RawQuery = query.Encode() + "&port={port}&host=" + links + "{host}"
	p := cluster.At(url)
	p.Nodes = connect.Fixed(template.String())
	holders, err := p.Holders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holders.Close)
	return proxy, holders
}
