// Starts `pilotlight serve` with a page, and other programs, for tests and for the picture.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const program = process.env.PILOTLIGHT ?? new URL('../../target/debug/pilotlight', import.meta.url).pathname;

const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

// Runs a program that is killed when this process ends.
export function run(args, stdio = 'ignore') {
  const child = spawn(program, args, { stdio: ['ignore', stdio, process.env.VERBOSE ? 'inherit' : 'ignore'] });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return child;
}

export const folder = mkdtempSync(join(tmpdir(), 'pilotlight-page-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));

export class Server {
  // Starts a server and waits until it is ready. If a configuration file is passed, it sets the control socket.
  static async start(args, { socket = join(folder, 'control.sock'), isInConfig = false } = {}) {
    const server = new Server();
    server.socket = socket;
    server.child = run(['serve', '--json', ...(isInConfig ? [] : ['--admin-socket', socket]), ...args], 'pipe');
    for await (const line of createInterface({ input: server.child.stdout })) {
      server.message = JSON.parse(line);
      break;
    }
    if (!server.message) throw new Error('the server does not start; VERBOSE=1 shows why');
    return server;
  }

  get url() { return this.message.page; }
  get target() { return this.message.listening[0]; }

  // The JSON output of a command sent to this server.
  run(...args) {
    return JSON.parse(execFileSync(program, [...args, '--json', '--socket', this.socket]));
  }

  get token() { return this.run('page').token; }

  async stop() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGTERM');
    await ended;
  }
}
