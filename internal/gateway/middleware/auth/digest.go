package auth

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// digestAuth checks digests of passwords.
type digestAuth struct {
	realm, opaque string
	// hashes has MD5(NAME:REALM:PASSWORD) in hexadecimal, by name.
	hashes map[string]string
	nonces *nonces
}

// NewDigestAuth asks for a name and the digest of a password (RFC 7616 with MD5 and
// qop=auth; clients of RFC 2069, without qop, get one request per nonce). The user's name
// is in Request.URL.User for the access log.
func NewDigestAuth(b *base.Builder, v *gateway.DigestAuth) (base.Func, error) {
	d := &digestAuth{realm: realmOr(v.Realm), opaque: rand.Text(), hashes: map[string]string{},
		nonces: newNonces(b.Now)}
	b.Depends = v.UsersFile != ""
	lines, err := readUsers(v.UsersFile, v.Users)
	if err != nil {
		return nil, err
	}
	for i, line := range lines {
		parts := strings.Split(line, ":")
		if len(parts) != 3 || parts[0] == "" || len(parts[2]) != 2*md5.Size {
			return nil, fmt.Errorf("read user %d: want NAME:REALM:HASH, as htdigest writes it", i+1)
		}
		if parts[1] == d.realm {
			d.hashes[parts[0]] = strings.ToLower(parts[2])
		}
	}
	if len(d.hashes) == 0 {
		return nil, fmt.Errorf("no user has the realm %q: set realm", d.realm)
	}
	if v.HeaderField != "" {
		if err := base.CheckHeader(v.HeaderField, ""); err != nil {
			return nil, err
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, err := d.authenticate(r)
			if err != nil {
				d.challenge(w, errors.Is(err, errStale))
				return
			}
			accept(r, user, v.HeaderField, v.RemoveHeader)
			next.ServeHTTP(w, r)
		})
	}, nil
}

// challenge asks the client for a digest. Stale means: the digest was right, but the
// nonce was not; the client does not ask the user again.
func (d *digestAuth) challenge(w http.ResponseWriter, stale bool) {
	text := fmt.Sprintf(`Digest realm=%s, nonce="%s", opaque="%s", algorithm=MD5, qop="auth"`,
		quoteRealm(d.realm), d.nonces.issue(), d.opaque)
	if stale {
		text += ", stale=true"
	}
	w.Header().Set("WWW-Authenticate", text)
	base.Refuse(w, http.StatusUnauthorized)
}

// errDigest is the error for a wrong digest, errStale for a right one with an old nonce.
var (
	errDigest = errors.New("the digest is wrong")
	errStale  = errors.New("the nonce is old or was used")
)

// authenticate returns the user.
func (d *digestAuth) authenticate(r *http.Request) (string, error) {
	p := digestParameters(r.Header.Get("Authorization"))
	algorithm := p["algorithm"]
	if p["realm"] != d.realm || p["opaque"] != d.opaque || algorithm != "" && !strings.EqualFold(algorithm, "MD5") ||
		!sameTarget(r, p["uri"]) {
		return "", errDigest
	}
	hash, exists := d.hashes[p["username"]]
	second := md5Hex(r.Method + ":" + p["uri"])
	var want string
	var count uint64
	switch p["qop"] {
	case "auth":
		var err error
		if count, err = strconv.ParseUint(p["nc"], 16, 32); err != nil || count == 0 {
			return "", errDigest
		}
		want = md5Hex(strings.Join([]string{hash, p["nonce"], p["nc"], p["cnonce"], "auth", second}, ":"))
	case "":
		want = md5Hex(hash + ":" + p["nonce"] + ":" + second)
	default:
		return "", errDigest
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(strings.ToLower(p["response"]))) != 1 || !exists {
		return "", errDigest
	}
	if !d.nonces.use(p["nonce"], count) {
		return "", errStale
	}
	return p["username"], nil
}

// sameTarget returns whether a digest is for the request's target. The client's text may
// differ from the cleaned one.
func sameTarget(r *http.Request, uri string) bool {
	u, err := url.ParseRequestURI(uri)
	return err == nil && u.Path == r.URL.Path && u.RawQuery == r.URL.RawQuery
}

func md5Hex(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// digestParameters reads the parameters of an Authorization header. It returns nil for
// another scheme.
func digestParameters(header string) map[string]string {
	scheme, rest, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Digest") {
		return nil
	}
	parameters := map[string]string{}
	for rest != "" {
		name, value, ok := strings.Cut(strings.TrimLeft(rest, " \t,"), "=")
		if !ok {
			break
		}
		name = strings.ToLower(strings.TrimSpace(name))
		parameters[name], rest = parameterValue(strings.TrimLeft(value, " \t"))
	}
	return parameters
}

// parameterValue reads a token or a quoted string (RFC 9110, section 5.6.4).
func parameterValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		value, rest, _ = strings.Cut(text, ",")
		return strings.TrimSpace(value), rest
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:]
		case '\\':
			if i++; i == len(text) {
				return b.String(), ""
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), ""
}
