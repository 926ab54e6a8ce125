// Package auth has the middlewares that admit users: basicAuth, digestAuth, forwardAuth.
//
// It admits no addresses: package limit does.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// hashing limits the goroutines that hash passwords, so that guesses of passwords leave
// CPUs to other requests.
var hashing = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// basicAuth checks the names and passwords of requests.
type basicAuth struct {
	accounts map[string]*account
	// unknown is checked for names that do not exist, so that they take as long.
	unknown *account
	// key is random and only in memory: digests of passwords are worthless without it.
	key [32]byte
}

// account is one user.
type account struct {
	check passwordHash
	// verified is the keyed digest of the last correct password. bcrypt takes
	// 50 ms and more; a request with the same password costs microseconds only.
	// Wrong passwords are not kept: memory is bounded by the number of users.
	verified atomic.Pointer[[sha256.Size]byte]
}

// NewBasicAuth asks for a name and password (RFC 7617). The user's name is in
// Request.URL.User for the access log.
func NewBasicAuth(b *base.Builder, v *gateway.BasicAuth) (base.Func, error) {
	b.Depends = v.UsersFile != ""
	a, err := readAccounts(v)
	if err != nil {
		return nil, err
	}
	if v.HeaderField != "" {
		if err := base.CheckHeader(v.HeaderField, ""); err != nil {
			return nil, err
		}
	}
	challenge := "Basic realm=" + quoteRealm(realmOr(v.Realm))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, ok := r.BasicAuth()
			if !ok || !a.authenticate(r.Context(), user, password) {
				w.Header().Set("WWW-Authenticate", challenge)
				base.Refuse(w, http.StatusUnauthorized)
				return
			}
			accept(r, user, v.HeaderField, v.RemoveHeader)
			next.ServeHTTP(w, r)
		})
	}, nil
}

// accept records the user of a request.
func accept(r *http.Request, user, field string, remove bool) {
	u := *r.URL
	u.User = url.User(user)
	r.URL = &u
	if field != "" {
		base.SetTrusted(r.Header, field, user)
	}
	if remove {
		r.Header.Del("Authorization")
	}
}

func readAccounts(v *gateway.BasicAuth) (*basicAuth, error) {
	lines, err := readUsers(v.UsersFile, v.Users)
	if err != nil {
		return nil, err
	}
	a := &basicAuth{accounts: map[string]*account{}}
	_, _ = rand.Read(a.key[:]) // It never fails: see its documentation.
	for i, line := range lines {
		name, hash, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.Contains(hash, ":") {
			return nil, fmt.Errorf("read user %d: want NAME:HASH, as `htpasswd -nB NAME` prints it", i+1)
		}
		check, err := parseHash(hash)
		if err != nil {
			return nil, fmt.Errorf("read user %q: %w", name, err)
		}
		a.accounts[name] = &account{check: check}
		a.unknown = a.accounts[name]
	}
	return a, nil
}

// authenticate returns whether a password is the user's.
func (a *basicAuth) authenticate(ctx context.Context, user, password string) bool {
	digest := a.digest(user, password)
	who, exists := a.accounts[user]
	if exists {
		if known := who.verified.Load(); known != nil && subtle.ConstantTimeCompare(known[:], digest[:]) == 1 {
			return true
		}
	} else {
		who = a.unknown
	}
	select {
	case hashing <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-hashing }()
	if !who.check(password) || !exists {
		return false
	}
	who.verified.Store(&digest)
	return true
}

// digest returns the keyed hash of a name and password.
func (a *basicAuth) digest(user, password string) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, a.key[:])
	fmt.Fprintf(mac, "%d:%s:%s", len(user), user, password)
	mac.Sum(sum[:0])
	return sum
}
