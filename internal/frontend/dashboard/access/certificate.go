package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// settled is how old the files of a new certificate must be: they are two, and their writer may be between them.
const settled = time.Second

// certificate is that of this host. It is read again when its files have changed. It is safe for concurrent use.
type certificate struct {
	files [2]string // the certificate and its key
	// kept gets why a new certificate cannot be used. The earlier one is served then.
	kept func(error)

	mu   sync.Mutex
	pair *tls.Certificate
	// read says which files were used or refused last.
	read string
	// unread means that kept got why the files cannot be read, and that this has not ended.
	unread bool
}

// newCertificate reads a certificate and its key.
func newCertificate(chain, key string) (*certificate, error) {
	c := &certificate{files: [2]string{chain, key}, kept: func(error) {}}
	c.read, _ = c.version()
	return c, c.load()
}

// version identifies the files as they are now; changed is the time of the last change.
func (c *certificate) version() (text string, changed time.Time) {
	for _, name := range c.files {
		info, err := os.Stat(name)
		if err != nil {
			text += err.Error()
			continue
		}
		changes := info.Sys().(*syscall.Stat_t).Ctim // chmod changes it, too
		text += fmt.Sprintf("%s %d %v;", info.ModTime(), info.Size(), changes)
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
	}
	return text, changed
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.files[0], c.files[1])
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	c.pair = &pair
	return nil
}

// current returns the certificate to serve.
func (c *certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, changed := c.version()
	if version == c.read {
		c.unread = false
		return c.pair
	}
	if time.Since(changed) <= settled {
		return c.pair
	}
	err := c.load()
	unread := errors.As(err, new(*fs.PathError))
	if !unread {
		c.read = version // files that could not be read, e.g. for lack of descriptors, are tried again
	}
	if err != nil && !(unread && c.unread) {
		c.kept(err) // once, although the reason may alternate
	}
	c.unread = unread
	return c.pair
}
