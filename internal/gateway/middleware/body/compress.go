package body

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// defaultMinSize is the least size of a compressed body if none is configured: smaller
// ones fit in a packet or two anyway.
const defaultMinSize = 1024

// NewCompress compresses responses as clients accept it (RFC 9110, section 12.5.3). Left
// unchanged are: partial and already encoded responses, those with "no-transform", event
// streams, gRPC, upgrades, small ones, and types that are compressed already, such as
// images. The last are not in Traefik's default, they would only cost CPU.
func NewCompress(_ *base.Builder, v *gateway.Compress) (base.Func, error) {
	c := &compress{encodings: v.Encodings, fallback: v.DefaultEncoding, minSize: v.MinResponseBodyBytes}
	if len(c.encodings) == 0 {
		c.encodings = []string{"gzip", "br", "zstd"}
	}
	for _, encoding := range c.encodings {
		if encoders[encoding] == nil {
			return nil, fmt.Errorf("use encoding %q: use gzip, br or zstd", encoding)
		}
	}
	if c.fallback != "" && !slices.Contains(c.encodings, c.fallback) {
		return nil, fmt.Errorf("use default encoding %q: it is not one of the encodings %s", c.fallback,
			strings.Join(c.encodings, ", "))
	}
	if c.minSize <= 0 {
		c.minSize = defaultMinSize
	}
	var err error
	if c.excluded, err = mediaTypes(v.ExcludedContentTypes); err != nil {
		return nil, err
	}
	if c.included, err = mediaTypes(v.IncludedContentTypes); err != nil {
		return nil, err
	}
	if len(c.excluded) > 0 && len(c.included) > 0 {
		return nil, fmt.Errorf("excludedContentTypes and includedContentTypes exclude each other: set one of them")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
	}, nil
}

// mediaTypes returns types without their parameters.
func mediaTypes(list []string) (types []string, err error) {
	for _, text := range list {
		kind, _, err := mime.ParseMediaType(text)
		if err != nil {
			return nil, fmt.Errorf("read content type %q: %w", text, err)
		}
		types = append(types, kind)
	}
	return types, nil
}

func (c *compress) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Header.Get("Upgrade") != "" || slices.Contains(c.excluded, mediaType(r.Header)) {
		next.ServeHTTP(w, r)
		return
	}
	encoding := c.choose(r.Header["Accept-Encoding"])
	if r.Method == http.MethodHead || encoding == "" {
		out := &base.HeadWriter{ResponseWriter: w}
		out.Before = func(status int) {
			if c.compressible(w.Header(), status) {
				base.AddVary(w.Header(), "Accept-Encoding")
			}
		}
		next.ServeHTTP(out, r)
		out.Finish()
		return
	}
	out := &compressWriter{ResponseWriter: w, compress: c, encoding: encoding}
	next.ServeHTTP(out, r)
	out.finish() // Not if the handler panics: the client must see that the body is cut.
}
