// Package traefik turns what Traefik is configured with (labels of containers, files,
// flags) into the values of internal/model/gateway. It reads no socket and starts
// nothing: it only reads the files that its caller names. Package tree parses all three
// forms.
package traefik
