// Passkeys: registering one for the person who is signed in, and using one for exactly one approval.

import { RpcError } from './rpc.js';
import { request } from './http.js';

const PATH = '/v1/auth/passkeys';

// canUse reports whether this browser can use passkeys on this page.
export function canUse() {
  return isSecureContext && Boolean(globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON);
}

// prove asks the person for their passkey, for the subject, and returns what the bridge verifies.
export async function prove(subject) {
  const { options, state } = await request('POST', `${PATH}/challenge`, subject);
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
  return { state, credential: (await asked(() => navigator.credentials.get({ publicKey }))).toJSON() };
}

// register registers a passkey. A person who has one proves with it who they are first.
export async function register() {
  const { count } = await request('GET', PATH);
  const proof = count > 0 ? await prove({}) : undefined;
  const { options, state } = await request('POST', `${PATH}/new`, { ...(proof && { proof }) });
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
  const credential = (await asked(() => navigator.credentials.create({ publicKey }))).toJSON();
  await request('POST', PATH, { state, credential });
}

// asked turns the browser's errors, which say little by design, into one for people.
async function asked(ceremony) {
  try {
    return await ceremony();
  } catch (e) {
    const known = { NotAllowedError: 'The passkey was not used: it was cancelled, it took too long, or none fits.', InvalidStateError: 'This device has a passkey for you already.' };
    throw new RpcError({ code: 'cancelled', message: known[e.name] ?? `The browser cannot use a passkey here: ${e.message}` });
  }
}
