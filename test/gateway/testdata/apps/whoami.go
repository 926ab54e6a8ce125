package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"

	"golang.org/x/net/websocket"
)

// whoami answers with its name and the request, and echoes WebSocket messages at /echo.
func whoami(args []string) error {
	flags := flag.NewFlagSet("whoami", flag.ExitOnError)
	port := flags.String("port", "80", "")
	cert, key := flags.String("cert", "", ""), flags.String("key", "", "")
	name := flags.String("name", os.Getenv("WHOAMI_NAME"), "")
	_ = flags.Parse(args) // it exits with an error
	host, _ := os.Hostname()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Name: %s\nHostname: %s\n", *name, host)
		r.Header.Write(w)
	})
	http.Handle("/echo", websocket.Handler(echo))
	if *cert != "" {
		return http.ListenAndServeTLS(":"+*port, *cert, *key, nil)
	}
	return http.ListenAndServe(":"+*port, nil)
}

func echo(c *websocket.Conn) {
	for {
		var message []byte
		if websocket.Message.Receive(c, &message) != nil || websocket.Message.Send(c, message) != nil {
			return
		}
	}
}
