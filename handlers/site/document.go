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

// zipped caches documents compressed with gzip, by tag. It only holds documents of the program and its configuration,
// so its size is bounded.
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

// document makes a cacheable answer of a document. A caller that accepts gzip gets it compressed, under a tag of its
// own.
func (s *Site) document(r *http.Request, raw []byte, contentType string) (edge.Response, error) {
	resp := edge.Cacheable(raw, contentType)
	resp.Header.Set("Vary", "Accept-Encoding")
	if !acceptsGzip(r.Header.Values("Accept-Encoding")) {
		return resp, nil
	}
	var err error
	resp.Raw, err = s.zipped.of(resp.Tag, raw)
	resp.Tag += "-gzip"
	resp.Header.Set("Content-Encoding", "gzip")
	return resp, err
}

// acceptsGzip reports whether Accept-Encoding allows gzip (RFC 9110, section 12.5.3). Without the header the answer is
// no.
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
