package body

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"

	"golang.org/x/net/http/httpguts"
)

// defaultMinSize is the least size of a compressed body if none is configured: smaller
// ones fit in a packet or two anyway.
const defaultMinSize = 1024

// compress compresses responses.
type compress struct {
	// encodings are in the order of preference. If fallback is not empty, it is for
	// clients without preferences.
	encodings          []string
	fallback           string
	excluded, included []string
	minSize            int
}

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

// choose returns the encoding that the client prefers, or nothing. Among equal ones the
// first configured one wins.
func (c *compress) choose(accept []string) string {
	if len(accept) == 0 {
		return c.fallback
	}
	weights := qualities(accept)
	best, chosen := 0.0, ""
	if identity, ok := weights["identity"]; ok {
		best = identity
	}
	for _, encoding := range c.encodings {
		q, named := weights[encoding]
		if !named {
			q = weights["*"]
		}
		preferred := q == best && (chosen == "" || !named && encoding == c.fallback)
		if q > 0 && (q > best || preferred) {
			best, chosen = q, encoding
		}
	}
	return chosen
}

// qualities reads the weights of Accept-Encoding.
func qualities(accept []string) map[string]float64 {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		coding, parameter, _ := strings.Cut(item, ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q="); ok {
			parsed, err := strconv.ParseFloat(text, 64)
			if err != nil || parsed < 0 || parsed > 1 {
				parsed = 0
			}
			q = parsed
		}
		weights[strings.ToLower(strings.TrimSpace(coding))] = q
	}
	return weights
}

// compressible returns whether a response's head allows compression.
func (c *compress) compressible(h http.Header, status int) bool {
	switch {
	case status < 200, status == http.StatusNoContent, status == http.StatusPartialContent,
		status == http.StatusNotModified:
		return false
	case h.Get("Content-Encoding") != "", h.Get("Content-Range") != "":
		return false
	case httpguts.HeaderValuesContainsToken(h["Cache-Control"], "no-transform"):
		return false
	}
	if length, err := strconv.Atoi(h.Get("Content-Length")); err == nil && length < c.minSize {
		return false
	}
	kind := mediaType(h)
	switch {
	case kind == "text/event-stream", strings.HasPrefix(kind, "application/grpc"):
		return false
	case len(c.included) > 0:
		return slices.Contains(c.included, kind)
	}
	return !slices.Contains(c.excluded, kind) && !isCompressed(kind)
}

// mediaType returns the type of a message without its parameters, "?" for an invalid one.
func mediaType(h http.Header) string {
	text := h.Get("Content-Type")
	if text == "" {
		return ""
	}
	kind, _, err := mime.ParseMediaType(text)
	if err != nil {
		return "?"
	}
	return kind
}

// isCompressed returns whether bodies of a type do not get smaller.
func isCompressed(kind string) bool {
	class, name, _ := strings.Cut(kind, "/")
	switch {
	case class == "image":
		return name != "svg+xml" && name != "bmp" && name != "x-icon" && name != "vnd.microsoft.icon"
	case class == "audio", class == "video":
		return true
	case class == "font":
		return strings.HasPrefix(name, "woff")
	case class == "application":
		return slices.Contains([]string{"zip", "gzip", "x-gzip", "zstd", "x-7z-compressed", "x-bzip2", "x-xz",
			"vnd.rar", "pdf"}, name)
	}
	return kind == "?"
}
