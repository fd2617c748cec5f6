package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

// LogTileHeight is the height of the log's tiles (C2SP tlog-tiles).
const LogTileHeight = 8

const logPath = "/api/public/log/"

// LogCheckpoint fetches the newest checkpoint of the transparency log, a signed note. It proves nothing until
// evidence.OpenCheckpoint has verified it. The request carries no key.
func (c *Client) LogCheckpoint(ctx context.Context) (string, error) {
	const limit = 64 << 10
	body, err := c.do(ctx, ask{method: http.MethodGet, path: logPath + "checkpoint", public: true, raw: true})
	if err != nil {
		return "", err
	}
	if len(body) > limit {
		return "", say.Errorf("the checkpoint of %s is longer than %d bytes", c.base, limit)
	}
	return string(body), nil
}

// LogTimestamps fetches a page of tokens over checkpoints of trees with more than after leaves. The tokens are
// unverified: check them with CheckToken of evidence.Authority. The request carries no key.
func (c *Client) LogTimestamps(ctx context.Context, after int64) (page wire.LogTimestamps, err error) {
	body, err := c.do(
		ctx,
		ask{method: http.MethodGet, path: fmt.Sprintf("%stimestamps?after=%d", logPath, after), public: true, raw: true},
	)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil {
		return wire.LogTimestamps{}, say.Errorf("tokens of the log: %w", err)
	}
	return page, nil
}

// LogTile fetches a tile of hashes. If a partial tile is no longer kept, it fetches the full tile and cuts it. The
// hashes are unverified: check them with tlog.TileHashReader.
func (c *Client) LogTile(ctx context.Context, tile tlog.Tile) ([]byte, error) {
	body, err := c.do(ctx, ask{method: http.MethodGet, path: logPath + tilePath(tile), public: true, raw: true})
	var refused *Error
	if whole := 1 << LogTileHeight; tile.W < whole && errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		cut := tile.W * tlog.HashSize
		tile.W = whole
		if body, err = c.LogTile(ctx, tile); err == nil {
			body = body[:cut]
		}
		return body, err
	}
	if err != nil {
		return nil, err
	}
	if len(body) != tile.W*tlog.HashSize {
		return nil, say.Errorf("a tile of %s has %d bytes, but must have %d hashes", c.base, len(body), tile.W)
	}
	return body, nil
}

// tilePath returns the path of a tile in C2SP tlog-tiles, which has no height.
func tilePath(tile tlog.Tile) string {
	return "tile/" + strings.TrimPrefix(tile.Path(), fmt.Sprintf("tile/%d/", LogTileHeight))
}
