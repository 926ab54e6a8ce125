package body

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// compress compresses responses.
type compress struct {
	// encodings are in the order of preference. If fallback is not empty, it is for
	// clients without preferences.
	encodings          []string
	fallback           string
	excluded, included []string
	minSize            int
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
