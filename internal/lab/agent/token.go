package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Token lets one laboratory use an agent.
type Token struct {
	// fingerprint is the SHA-256 of the agent's certificate.
	fingerprint [sha256.Size]byte
	secret      [secretSize]byte
}

// IssuedToken is what `fairlead lab agent -o json` prints for each token.
type IssuedToken struct {
	Listen string `json:"listen"`
	Link   string `json:"link"`
	Token  string `json:"token"`
}

// secretSize is the size of a secret in bytes, which cannot be guessed.
const secretSize = 16

// tokenPrefix begins a token's text, and names the layout of the rest.
const tokenPrefix = "fl1-"

// newToken returns a token with a new secret.
func newToken(certificate []byte) (Token, error) {
	t := Token{fingerprint: sha256.Sum256(certificate)}
	_, err := rand.Read(t.secret[:])
	return t, err
}

// String returns the token as text without spaces.
func (t Token) String() string {
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(t.fingerprint[:], t.secret[:]...))
}

// ParseToken parses a token that an agent has printed.
func ParseToken(text string) (t Token, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if !ok || err != nil || len(b) != len(t.fingerprint)+len(t.secret) {
		return t, fmt.Errorf("it is no token of `fairlead lab agent`: copy the whole word that begins with %s", tokenPrefix)
	}
	copy(t.fingerprint[:], b)
	copy(t.secret[:], b[len(t.fingerprint):])
	return t, nil
}

// errOtherAgent means that the certificate is not the one for which the token was
// issued.
var errOtherAgent = errors.New("the token is not of this agent: its certificate has another fingerprint")

// check returns errOtherAgent if the certificate has another fingerprint.
func (t Token) check(certificate []byte) error {
	sum := sha256.Sum256(certificate)
	if subtle.ConstantTimeCompare(sum[:], t.fingerprint[:]) != 1 {
		return errOtherAgent
	}
	return nil
}

// matches reports whether the secret is the token's.
func (t Token) matches(secret []byte) bool {
	return subtle.ConstantTimeCompare(secret, t.secret[:]) == 1
}
