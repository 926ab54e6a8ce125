// Package website has the web site of the suite site: pages with assets, whose bytes
// both the servers and the visitors know, and the server of one node. It does not
// visit the site, and does not speak TLS: that is the work of the gateways.
package website

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Small is the path of the small page, for probes and health checks.
const Small = "/small"

// DefaultPages is the number of pages of an ordinary site.
const DefaultPages = 10

// Sizes of the resources in bytes. Every page has Images images; all pages share one
// style sheet and one script.
const (
	smallSize  = 200
	pageSize   = 8 << 10
	styleSize  = 20 << 10
	scriptSize = 50 << 10
	Images     = 6
	leastImage = 4 << 10
	mostImage  = 28 << 10
)

// Site is a web site. It is not changed after New.
type Site struct {
	// Pages are the pages. A visitor of one page fetches its assets too.
	Pages []Page
	// bodies are the contents of all resources by their paths.
	bodies map[string][]byte
}

// Page is a page with the resources that it needs.
type Page struct {
	Path   string
	Assets []string
}

// New returns the site with that number of pages. The same number always gives the
// same bytes.
func New(pages int) *Site {
	s := &Site{bodies: map[string][]byte{}}
	random := rand.New(rand.NewPCG(1, uint64(pages)))
	add := func(path string, size int) string {
		s.bodies[path] = text(random, path, size)
		return path
	}
	add(Small, smallSize)
	shared := []string{add("/style.css", styleSize), add("/script.js", scriptSize)}
	for n := range pages {
		p := Page{Path: add(fmt.Sprintf("/page-%d.html", n), pageSize), Assets: shared[:len(shared):len(shared)]}
		for i := range Images {
			size := leastImage + random.IntN(mostImage-leastImage)
			p.Assets = append(p.Assets, add(fmt.Sprintf("/page-%d/image-%d.png", n, i), size))
		}
		s.Pages = append(s.Pages, p)
	}
	return s
}

// text returns a body of that size, which differs from those of other paths from its
// first line on.
func text(random *rand.Rand, path string, size int) []byte {
	var b strings.Builder
	b.WriteString(path + "\n")
	for b.Len() < size {
		fmt.Fprintf(&b, "%016x", random.Uint64())
	}
	return []byte(b.String()[:size])
}

// Body returns the content of a resource, nil if there is none.
func (s *Site) Body(path string) []byte { return s.bodies[path] }
