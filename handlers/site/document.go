package site

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"integrityledger/handlers/edge"
)

// zipped are documents as gzip, by their tags. It holds what the program and its configuration publish, which is
// bounded.
type zipped struct{ sync.Map }

func (z *zipped) of(tag string, raw []byte) ([]byte, error) {
	if body, ok := z.Load(tag); ok {
		return body.([]byte), nil
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(raw); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	z.Store(tag, b.Bytes())
	return b.Bytes(), nil
}

// document is cacheable for what the program publishes: compressed for a caller that takes gzip, under a tag of its
// own.
func (s *Site) document(r *http.Request, raw []byte) (resp edge.Response, err error) {
	tag := edge.TagOf(raw)
	if !acceptsGzip(r.Header.Values("Accept-Encoding")) {
		resp = edge.CacheableAs(r, raw, tag)
	} else {
		if raw, err = s.zipped.of(tag, raw); err != nil {
			return edge.Response{}, err
		}
		if resp = edge.CacheableAs(r, raw, tag+"-gzip"); resp.Raw != nil {
			resp.Header.Set("Content-Encoding", "gzip")
		}
	}
	resp.Header.Set("Vary", "Accept-Encoding")
	return resp, nil
}

// acceptsGzip reports whether Accept-Encoding asks for gzip (RFC 9110, section 12.5.3); without the header nothing
// does.
func acceptsGzip(lines []string) bool {
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		coding, parameters, _ := mime.ParseMediaType(part)
		if coding == "gzip" {
			q, err := strconv.ParseFloat(parameters["q"], 64)
			return err != nil || q > 0
		}
	}
	return false
}
