// Package asset has the style and the script of the dashboard: embedded, compressed, and named by a hash of their
// content, so that browsers keep them for ever.
package asset

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed style.css dashboard.js icon.svg
var files embed.FS

// types are the media types of the files.
var types = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml"}

// file is a file in both forms in which it is sent.
type file struct {
	kind       string
	plain, zip []byte
}

// Set are the files by their hashed names.
type Set struct {
	hashed map[string]string
	byName map[string]file
}

// Load returns the files. It compresses them once for the whole process.
var Load = sync.OnceValue(func() *Set {
	s := &Set{hashed: map[string]string{}, byName: map[string]file{}}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Errorf("read embedded files: %w", err)) // a fault of the build
	}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Errorf("read embedded file: %w", err))
		}
		sum := sha256.Sum256(text)
		ext := path.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		s.hashed[e.Name()] = name
		s.byName[name] = file{types[ext], text, Compressed(text, gzip.BestCompression)}
	}
	return s
})

// Compressed returns a text as gzip of a level of package gzip, which must be valid.
func Compressed(text []byte, level int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		panic(err) // the level is valid
	}
	_, _ = w.Write(text) // a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// Name returns the hashed name of a file, such as style.0123456789ab.css.
func (s *Set) Name(file string) string { return s.hashed[file] }

// Size returns the number of bytes that a browser loads for a file.
func (s *Set) Size(file string) int { return len(s.byName[s.hashed[file]].zip) }

// ServeHTTP sends the file whose hashed name is the last part of the path.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := s.byName[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.zip
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}
