package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/handlers/wire"
)

// LogTileHeight is the height of the log's tiles (C2SP tlog-tiles).
const LogTileHeight = 8

const logPath = "/api/public/log/"

// LogCheckpoint fetches the newest checkpoint of the transparency log, a signed note. It proves nothing until
// evidence.OpenCheckpoint has opened it. No key is sent.
func (c *Client) LogCheckpoint(ctx context.Context) (string, error) {
	const most = 64 << 10
	body, err := c.do(ctx, ask{method: http.MethodGet, path: logPath + "checkpoint", public: true, raw: true})
	if err != nil {
		return "", err
	}
	if len(body) > most {
		return "", fmt.Errorf("the checkpoint of %s is longer than %d bytes", c.base, most)
	}
	return string(body), nil
}

// LogTimestamps fetches a page of tokens over checkpoints of trees with more than after leaves. They are what somebody
// sent; evidence.Authority's CheckToken checks them. No key is sent.
func (c *Client) LogTimestamps(ctx context.Context, after int64) (page wire.LogTimestamps, err error) {
	body, err := c.do(
		ctx,
		ask{method: http.MethodGet, path: fmt.Sprintf("%stimestamps?after=%d", logPath, after), public: true, raw: true},
	)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err != nil {
		return wire.LogTimestamps{}, fmt.Errorf("tokens of the log: %w", err)
	}
	return page, nil
}

// LogTile fetches a tile of hashes: the whole tile, cut, where the partial one is no longer kept. The hashes are what
// somebody sent; tlog.TileHashReader checks them.
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
		return nil, fmt.Errorf("a tile of %s has %d bytes, but must have %d hashes", c.base, len(body), tile.W)
	}
	return body, nil
}

// tilePath is a tile's path by C2SP tlog-tiles, which names no height.
func tilePath(tile tlog.Tile) string {
	return "tile/" + strings.TrimPrefix(tile.Path(), fmt.Sprintf("tile/%d/", LogTileHeight))
}
