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
	who string
	// token is the hash of the credential that began it.
	token [sha256.Size]byte
	ends  time.Time
}

func newSessions(base string, secure bool) *sessions {
	return &sessions{cookie: "fairlead-" + strings.ToLower(rand.Text()[:10]), secure: secure, base: base,
		all: map[[sha256.Size]byte]session{}}
}

// begin gives the browser that has shown a token a session.
func (s *sessions) begin(w http.ResponseWriter, who, token string) {
	value := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	s.all[sha256.Sum256([]byte(value))] = session{who, sha256.Sum256([]byte(token)),
		time.Now().Add(sessionLife)}
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

// of returns the session of a request, and false if it has none.
func (s *sessions) of(r *http.Request) (one session, ok bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return one, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok = s.all[sha256.Sum256([]byte(cookie.Value))]
	return one, ok && time.Now().Before(one.ends)
}
