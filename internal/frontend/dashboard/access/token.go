package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Stored lets in requests with a token whose hash is in a file: one line per token, with its name, a space and the
// SHA-256 of the token in hexadecimal. A line that is removed is refused from then on. Tokens have 128 bits of
// chance, so that a plain hash does not reveal them.
type Stored struct {
	file string
	*sessions
	slow *limiter
}

// NewStored returns the check for a file of hashes, for a dashboard that is served with TLS.
func NewStored(file string) (*Stored, error) {
	s := &Stored{file: file, sessions: newSessions("", true), slow: newLimiter()}
	_, err := s.hashes()
	return s, err
}

// AddToken adds a new token to a file, and returns it. The file and its directory are created if they do not exist.
func AddToken(file, name string) (token string, err error) {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", fmt.Errorf("add token %q: want a name without spaces", name)
	}
	s := &Stored{file: file}
	known, err := s.hashes()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, ok := known[name]; ok {
		return "", fmt.Errorf("add token %s: %s has a token of this name: remove its line first, or use another name",
			name,
			file)
	}
	token = rand.Text()
	sum := sha256.Sum256([]byte(token))
	if err := appendLine(file, name+" "+hex.EncodeToString(sum[:])); err != nil {
		return "", fmt.Errorf("add token %s: %w", name, err)
	}
	return token, nil
}

// appendLine adds a line to a file whose last line may lack its end.
func appendLine(file, line string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// hashes reads the file.
func (s *Stored) hashes() (map[string][]byte, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	all := map[string][]byte{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		name, sum, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		hash, err := hex.DecodeString(sum)
		if err != nil || len(hash) != sha256.Size {
			return nil,
				fmt.Errorf("read tokens: %s: the line of %q has no hash: write it with `fairlead dashboard --add-token`",
					s.file, name)
		}
		all[name] = hash
	}
	return all, nil
}

// name returns the name of a token. It compares with all hashes, each in constant time.
func (s *Stored) name(token string) (name string, ok bool) {
	all, err := s.hashes()
	if err != nil {
		return "", false
	}
	sum := sha256.Sum256([]byte(token))
	for n, hash := range all {
		if subtle.ConstantTimeCompare(sum[:], hash) == 1 {
			name, ok = n, true
		}
	}
	return name, ok
}

// valid reports whether the session has not ended, and the file still has its token.
func (s *Stored) valid(one session) bool {
	all, err := s.hashes()
	return err == nil && bytes.Equal(all[one.who], one.token[:]) && time.Now().Before(one.ends)
}

// recheck is how often the token of a running request is searched in the file again.
const recheck = time.Second

// serve serves a request with a token until the request or the session ends, or the token is withdrawn: a stream can
// last for days.
func (s *Stored) serve(h http.Handler, w http.ResponseWriter, r *http.Request, one session) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		ticker := time.NewTicker(recheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if !s.valid(one) {
					cancel()
				}
			}
		}
	}()
	h.ServeHTTP(w, with(r.WithContext(ctx), "token "+one.who))
}

// Guard lets in requests with a session or with the token in the header Authorization, and shows a form to others.
func (s *Stored) Guard(h http.Handler) http.Handler {
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if one, ok := s.of(r); ok && s.valid(one) {
			s.serve(h, w, r, one)
			return
		}
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer && r.Method == http.MethodPost && r.URL.Path == "/login" {
			r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
			token = r.PostFormValue("token")
		}
		if token == "" {
			s.ask(w, http.StatusUnauthorized, "")
			return
		}
		name, ok, wait := s.try(r.RemoteAddr, token)
		switch {
		case wait:
			w.Header().Set("Retry-After", "60")
			s.ask(w, http.StatusTooManyRequests, "Too many wrong tokens came from your address: wait a minute.")
		case !ok:
			s.ask(w, http.StatusUnauthorized, "The token is wrong.")
		case bearer:
			s.serve(h, w, r, session{name, sha256.Sum256([]byte(token)), time.Now().Add(sessionLife)})
		default:
			noStore(w)
			s.begin(w, name, token)
			http.Redirect(w, r, "/", http.StatusSeeOther)
		}
	}))
}

// try checks a token, unless too many wrong ones came from the address.
func (s *Stored) try(from, token string) (name string, ok, wait bool) {
	name, ok = s.name(token)
	if !s.slow.pass(from, ok) {
		return "", false, true
	}
	return name, ok, false
}

// ask shows the form for the token.
func (s *Stored) ask(w http.ResponseWriter, status int, why string) {
	noStore(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<!doctype html><html lang="en"><head><meta name="viewport" content="width=device-width">`+
		`<title>Fairlead</title></head><body><main><h1>Fairlead</h1><p role="alert">%s</p>`+
		`<form method="post" action="/login"><label>Token: <input type="password" name="token" autocomplete="off" `+
		`autofocus required></label> <button>Show the dashboard</button></form></main></body></html>`, why)
}
