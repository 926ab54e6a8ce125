package access

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The limits of sessions.
const (
	sessionLife = 12 * time.Hour
	maxSessions = 64
)

// sessions are the browsers that have shown a credential. They end with the process.
type sessions struct {
	// cookie is the name of the cookie. Browsers send cookies to all ports of a host, so it differs for each process.
	cookie string
	secure bool
	base   string

	mu  sync.Mutex
	all map[[sha256.Size]byte]session
}

// session is one browser.
type session struct {
	who  string
	ends time.Time
}

func newSessions(base string, secure bool) *sessions {
	return &sessions{cookie: "fairlead-" + strings.ToLower(rand.Text()[:10]), secure: secure, base: base,
		all: map[[sha256.Size]byte]session{}}
}

// begin gives the browser a session.
func (s *sessions) begin(w http.ResponseWriter, who string) {
	value := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	s.all[sha256.Sum256([]byte(value))] = session{who, time.Now().Add(sessionLife)}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: value, Path: s.base + "/", HttpOnly: true, Secure: s.secure,
		SameSite: http.SameSiteStrictMode})
}

// expire ends the sessions that are over, and the oldest one if there are too many. s.mu is held.
func (s *sessions) expire(now time.Time) {
	var oldest [sha256.Size]byte
	var at time.Time
	for key, one := range s.all {
		if now.After(one.ends) {
			delete(s.all, key)
		} else if at.IsZero() || one.ends.Before(at) {
			oldest, at = key, one.ends
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, oldest)
	}
}

// of returns who has the session of a request, and false if it has none.
func (s *sessions) of(r *http.Request) (who string, ok bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[sha256.Sum256([]byte(cookie.Value))]
	return one.who, ok && time.Now().Before(one.ends)
}
