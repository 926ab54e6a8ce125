package middleware

import "fairlead/internal/model/gateway"

// Unused returns a note for each option of a middleware that is valid and has no effect.
func Unused(m *gateway.Middleware) (notes []string) {
	if f := m.ForwardAuth; f != nil && f.TLS != nil && f.TLS.CAOptional != nil {
		notes = append(notes, "tls.caOptional has no effect, as in Traefik v3: the server chooses whether it asks for "+
			"a certificate")
	}
	return notes
}
