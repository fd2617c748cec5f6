package clustertest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Move moves the piece of a shard to the other of two nodes.
func Move(ctx context.Context, url string, shard uint16) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx,
		fmt.Sprintf(`SELECT citus_move_shard_placement(p.shardid, f.nodename, f.nodeport, o.nodename, o.nodeport, 'block_writes')
		FROM pg_dist_placement p JOIN pg_dist_node f USING (groupid) JOIN pg_dist_node o ON o.shouldhaveshards AND o.groupid <> p.groupid
		WHERE p.shardid = get_shard_id_for_distribution_column('public.shard_heads', %d)`, shard))
	return err
}
