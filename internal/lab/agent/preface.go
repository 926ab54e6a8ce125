package agent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"syscall"
)

// A laboratory begins the connection with a preface: a nonce and its HMAC-SHA256
// (RFC 2104) with the token's secret. So the agent recognizes connections without the
// token before TLS, at the price of one hash. The preface proves no more than that: it
// may be a copy of another laboratory's, and the greeting within TLS has the secret.
const (
	nonceSize   = 16
	prefaceSize = nonceSize + sha256.Size
)

// preface returns a new preface.
func (t Token) preface() ([]byte, error) {
	nonce := make([]byte, nonceSize)
	_, err := rand.Read(nonce)
	return append(nonce, t.mac(nonce)...), err
}

// proves reports whether a preface was made with the token.
func (t Token) proves(preface []byte) bool {
	return hmac.Equal(preface[nonceSize:], t.mac(preface[:nonceSize]))
}

func (t Token) mac(nonce []byte) []byte {
	h := hmac.New(sha256.New, t.secret[:])
	h.Write(nonce)
	return h.Sum(nil)
}

// errNotAdmitted means that the agent has closed the connection after the preface.
var errNotAdmitted = errors.New("the agent closed the connection: the token is wrong, was used already, or is another " +
	"agent's: use the last one that the agent has printed")

// closed returns errNotAdmitted if err means that the other side closed the
// connection.
func closed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return errNotAdmitted
	}
	return err
}
